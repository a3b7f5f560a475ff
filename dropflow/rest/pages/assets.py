"""Static files of the pages: style sheets, scripts and pictures of a folder inside a package.

Every file is a route of its own and is read once, so that no path of a request reaches the file system. Browsers
revalidate each file with the digest that they have: a new version is loaded immediately, an unchanged one is not sent.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

from dropflow.rest.server.route import Request, Response, Route

__all__ = ["STATIC", "asset_routes"]

STATIC = Path(__file__).with_name("static")
"""The folder of the files that all pages use: ``dropflow.css`` and ``favicon.svg``."""

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def asset_routes(*folders: Path, prefix: str = "/static") -> list[Route]:
    """Return a public route for each style sheet, script and picture in `folders`.

    Parameters
    ----------
    folders : Path
        Such as `STATIC`. A file of a later folder replaces one of the same name.
    prefix : str
        First part of the paths, as in ``/static/dropflow.css``.
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
