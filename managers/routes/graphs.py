"""Reads graphs from bodies, in any form, and writes DALiuGE's JSON."""

import io
import tempfile
import zlib
from collections.abc import Iterator

from dropflow.errors import BadFileError, BadGraphError, HttpError
from dropflow.graph.codec import is_dfg, parse
from dropflow.graph.interchange import read_pg_stream, write_pg
from dropflow.graph.physical import PhysicalGraph
from dropflow.rest.server.request_body import check_depth, unpacked_limit

__all__ = ["pg_json", "read_graph"]


_GZIP = b"\x1f\x8b"
_LARGEST = 1 << 30
_PROBE = 64
_SPOOL = 16 * 1024 * 1024
_CHUNK = 256 * 1024


def read_graph(body: bytes, *, most: int, depth: int) -> PhysicalGraph:
    """Return the physical graph in a body: a ``.dfg`` container or DALiuGE's JSON, plain or in a gzip file.

    Raises
    ------
    BadFileError, BadGraphError
        It is neither, or damaged; with all problems.
    HttpError
        413 for a graph of more than `most` drops, 400 for JSON that is nested deeper than `depth` levels.
    """
    if body.startswith(_GZIP):
        body = _unzipped(body)
    if not body:
        raise BadFileError("the body is empty", hint="send a .dfg file, or a physical graph in DALiuGE's JSON")
    if is_dfg(body):
        graph = parse(body)
    else:
        if body.lstrip()[:1] not in (b"[", b"{"):
            raise BadFileError(
                f"the body is not a physical graph: it begins with {body[:_PROBE]!a}",
                hint="send a .dfg file, or a physical graph in DALiuGE's JSON",
            )
        check_depth(body, depth, what="the graph")
        graph = read_pg_stream(io.BytesIO(body), name="")
    if graph.drops > most:
        raise _too_many(most)
    if not graph.drops:
        raise BadGraphError("the graph has no drops", where=graph.name)
    return graph


def pg_json(graph: PhysicalGraph) -> Iterator[bytes]:
    """Yield DALiuGE's JSON of a graph in chunks; a large one is buffered on disk."""
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL) as file:
        write_pg(graph, file)
        file.seek(0)
        while chunk := file.read(_CHUNK):
            yield chunk


def _unzipped(body: bytes) -> bytes:
    unpack = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        most = unpacked_limit(len(body), _LARGEST)
        data = unpack.decompress(body, most)
    except zlib.error as error:
        raise BadFileError(f"the gzip file is damaged: {error}") from error
    if not unpack.eof:
        if len(data) >= most:
            raise HttpError(413, f"the graph is larger than {most} bytes")
        raise BadFileError("the gzip file is cut off")
    return data


def _too_many(most: int) -> HttpError:
    return HttpError(413, f"the graph has too many drops; this server takes {most}")
