"""Answers that are downloads, whole or in part."""

from collections.abc import Callable

from dropflow.rest.byte_range import DataQuery
from dropflow.rest.content_disposition import attachment
from dropflow.rest.download import Download
from dropflow.rest.server.route import Request, Response

__all__ = ["content_response", "download_response"]

_LONGEST = 200
"""Characters of a header that are read."""


def content_response(request: Request, read: Callable[[DataQuery], Download]) -> Response:
    """Return the content that `read` returns, or the part of it that the headers or the query of a request ask for."""
    query = request.query or DataQuery()
    if given := request.headers.get("Range", ""):
        query = DataQuery(range=given[:_LONGEST], if_range=request.headers.get("If-Range", "")[:_LONGEST])
    return download_response(read(query))


def download_response(download: Download) -> Response:
    """Return a download as an answer: with status 206 if it is a part of a content."""
    headers = [attachment(download.name)]
    if download.size is not None:
        headers.append(("Content-Length", str(download.size)))
    if download.etag:
        headers += [("Accept-Ranges", "bytes"), ("ETag", download.etag)]
    if download.part is not None:
        headers.append(("Content-Range", download.part.header))
    status = 200 if download.part is None else 206
    return Response(
        body=iter(download.chunks), content_type=download.content_type, status=status, headers=tuple(headers)
    )
