"""Static files of the pages: style sheets, scripts and pictures of a folder inside a package.

Every file is a route of its own, read once: no path of a request ever meets the file system. Browsers ask again each
time with the digest that they know, so a new version is seen at once and an old one costs no bytes.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

from dropflow.rest.kit import Request, Response, Route

__all__ = ["STATIC", "asset_routes"]

STATIC = Path(__file__).with_name("static")
"""The folder of what all pages share: ``dropflow.css`` and ``favicon.svg``."""

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def asset_routes(*folders: Path, prefix: str = "/static") -> list[Route]:
    """A public route for each style sheet, script and picture of `folders`.

    Parameters
    ----------
    folders : Path
        Such as `STATIC`. A later folder's file hides one of the same name.
    prefix : str
        Where they are served: ``/static/dropflow.css``.
    """
    files = {path.name: path for folder in folders for path in sorted(folder.iterdir()) if path.suffix in _TYPES}
    return [
        Route(
            method="GET",
            path=f"{prefix}/{name}",
            handler=_handler(path.read_bytes(), _TYPES[path.suffix]),
            summary=f"The file {name} of the pages.",
            public=True,
            tag="pages",
        )
        for name, path in files.items()
    ]


def _handler(content: bytes, content_type: str) -> Callable[[Request], Response]:
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = (("ETag", tag), ("Cache-Control", "no-cache"))

    def serve(call: Request) -> Response:
        known = next((value for name, value in call.headers.items() if name.lower() == "if-none-match"), "")
        if tag in known:
            return Response(status=304, content_type=content_type, headers=headers)
        return Response(body=content, content_type=content_type, headers=headers)

    return serve
