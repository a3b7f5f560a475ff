"""The head of a request as a WSGI server gives it, and what is decided from it before the body is read."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import msgspec

from dropflow.errors import DropflowError, HttpError
from dropflow.rest.auth import Admission, Proof
from dropflow.rest.budget import Account

__all__ = ["HAS_CREDENTIAL", "HEAD_CHECK", "HeadCheck", "headers_of", "path_of", "target_of"]

HEAD_CHECK = "dropflow.head_check"
"""Where a server that judged a request before its body puts the `HeadCheck` into the WSGI environment."""

HAS_CREDENTIAL = "dropflow.known"
"""Where the application notes, for the server, that the request showed a credential."""


class HeadCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What is decided from the head of a request.

    Attributes
    ----------
    admission : Admission
        How it is let in.
    limit : int
        Bytes that its body may have as it is sent.
    account : Account or None
        Where the server counts the bytes of the body that it receives.
    refused : DropflowError or None
        Why the request is refused; its body is not read.
    """

    admission: Admission = Admission(proof=Proof.NONE)
    limit: int = 0
    account: Account | None = None
    refused: DropflowError | None = None


def headers_of(environ: Mapping[str, Any]) -> dict[str, str]:
    """All headers, with every word of their names capitalised; bytes that are no ASCII stand as Latin-1."""
    found = {name[5:]: value for name, value in environ.items() if name.startswith("HTTP_")}
    found |= {name: environ[name] for name in ("CONTENT_TYPE", "CONTENT_LENGTH") if environ.get(name)}
    return {name.replace("_", "-").title(): value for name, value in found.items()}


def target_of(environ: Mapping[str, Any]) -> str:
    """Path and query as they were sent, as far as the server in front tells.

    Raises
    ------
    HttpError
        400: the request names a whole URL, of another host than its header says.
    """
    given: str = environ.get("REQUEST_URI", "")
    if given.startswith("/"):
        return given
    if given:
        parts = urlsplit(given)
        if parts.netloc and parts.netloc != environ.get("HTTP_HOST"):
            raise HttpError(400, "the request line names another host than the Host header")
        return f"{parts.path}?{parts.query}" if parts.query else parts.path
    query = environ.get("QUERY_STRING", "")
    path = quote(environ.get("bottle.raw_path", environ["PATH_INFO"]).encode("latin-1"))
    return f"{path}?{query}" if query else path


def path_of(target: str) -> str:
    """The path of a target, quoted anew, so that a quoted slash is part of a name and not the end of it.

    Raises
    ------
    HttpError
        400: it is not UTF-8.
    """
    try:
        pieces = [unquote(piece, errors="strict") for piece in target.partition("?")[0].split("/")]
    except UnicodeDecodeError:
        raise HttpError(400, "the path is not UTF-8") from None
    return "/".join(quote(piece, safe="") for piece in pieces)
