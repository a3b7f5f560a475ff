"""The fields of a small posted form, ``application/x-www-form-urlencoded``."""

from urllib.parse import parse_qsl

from dropflow.errors import HttpError

__all__ = ["FORM", "posted_fields"]

FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 100


def posted_fields(body: bytes, content_type: str) -> tuple[tuple[str, str], ...]:
    """Return names and values in the order in which they were sent; nothing for a body of another type.

    Raises
    ------
    HttpError
        400 for a form that is not text, or has too many fields.
    """
    if content_type.partition(";")[0].strip().lower() != FORM:
        return ()
    try:
        return tuple(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except (UnicodeDecodeError, ValueError) as error:
        raise HttpError(400, f"the form cannot be read: {error}") from error
