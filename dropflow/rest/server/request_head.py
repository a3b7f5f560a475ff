"""The head of a request in the WSGI environment, and what is decided from it before the body is read."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import msgspec

from dropflow.errors import DropflowError, HttpError
from dropflow.rest.server.auth import Admission, Proof
from dropflow.rest.server.budget import Account

__all__ = ["HAS_CREDENTIAL", "HEAD_CHECK", "HeadCheck", "headers_of", "path_of", "target_of"]

HEAD_CHECK = "dropflow.head_check"
"""Key in the WSGI environment of the `HeadCheck`, if the server checked the head before it read the body."""

HAS_CREDENTIAL = "dropflow.known"
"""Key in the WSGI environment with which the application tells the server that the request had a credential."""


class HeadCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What is decided from the head of a request.

    Attributes
    ----------
    admission : Admission
        How it may enter.
    limit : int
        Bytes that its body may have, as it is sent.
    account : Account or None
        Counts the bytes of the body that the server receives.
    refused : DropflowError or None
        Why the request is refused; its body is not read.
    """

    admission: Admission = Admission(proof=Proof.NONE)
    limit: int = 0
    account: Account | None = None
    refused: DropflowError | None = None


def headers_of(environ: Mapping[str, Any]) -> dict[str, str]:
    """Return all headers, with every word of their names capitalised and their values as Latin-1."""
    found = {name[5:]: value for name, value in environ.items() if name.startswith("HTTP_")}
    found |= {name: environ[name] for name in ("CONTENT_TYPE", "CONTENT_LENGTH") if environ.get(name)}
    return {name.replace("_", "-").title(): value for name, value in found.items()}


def target_of(environ: Mapping[str, Any]) -> str:
    """Return path and query as they were sent, if the server in front passes them on.

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
    """Return the path of a target, quoted again, so that a quoted slash stays part of a name.

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
