"""The process that writes a graph as DALiuGE's JSON, or for other programs, to standard output, in blocks of drops.

Started as ``python -m translator.web.export FOLDER`` by `translator.web.jobs`, with an `ExportOrder` as JSON on the
first line of standard input. It is a process, because writing a million drops takes an interpreter seconds,
during which the server could not answer other requests.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec
import numpy as np

from dropflow.graph import codec
from dropflow.graph.daliuge_write import write_pg
from dropflow.graph.exports import WRITERS
from dropflow.graph.order import roots
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oids
from dropflow.standard_output import reserve
from translator.web.translation_process import GRAPH, leave_with_parent, restrict

ExportForm = Literal["list", "spec", "dot", "graphml", "csv", "edges.csv"]

_ESCAPES = ((b"\\", b"\\\\"), (b'"', b'\\"'), (b"\n", b"\\n"))


class ExportOrder(msgspec.Struct, frozen=True, kw_only=True):
    """How to write a graph.

    Attributes
    ----------
    nodes : tuple of str
        Names for the parts: part k is on node k modulo the number of nodes.
    islands : tuple of str
        Names of islands, which share the nodes in blocks.
    form : str
        ``list`` for the list of drops; ``spec`` for the answer of DALiuGE's ``gen_pg_spec``: a JSON text that contains
        another, with the keys ``pg_spec`` and ``root_uids``; else one of `dropflow.graph.exports`.
    has_plan : bool
        Whether parts and priorities are written; DALiuGE's ``unroll`` answers without.
    memory, seconds
        Limits of the process.
    """

    nodes: tuple[str, ...] = ()
    islands: tuple[str, ...] = ()
    form: ExportForm = "list"
    has_plan: bool = True
    memory: int
    seconds: float


class _Quoted:
    """Writes JSON as a string inside JSON. The input is valid JSON without other control characters."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, data: bytes, /) -> object:
        """Write bytes."""
        for plain, escaped in _ESCAPES:
            data = data.replace(plain, escaped)
        return self._stream.write(data)


def write(graph: PhysicalGraph, order: ExportOrder, stream: BinaryIO) -> None:
    """Write `graph` to `stream` in the format and with the options of `order`."""
    if not order.has_plan:
        graph = replace(graph, part=np.zeros(graph.drops, dtype=np.int32), priority=None)
    places = [order.nodes[part % len(order.nodes)] for part in range(graph.parts)] if order.nodes else None
    if order.islands:
        share = max(len(order.nodes), 1)
        islands = [order.islands[(part % share) * len(order.islands) // share] for part in range(graph.parts)]
        graph = replace(graph, meta=graph.meta | {"islands": msgspec.json.encode(islands).decode()})
    if order.form == "list":
        write_pg(graph, stream, places=places)
        return
    if order.form != "spec":
        WRITERS[order.form](replace(graph, places=tuple(places)) if places else graph, stream)
        return
    quoted = _Quoted(stream)
    stream.write(b'"')
    quoted.write(b'{"pg_spec":')
    write_pg(graph, quoted, places=places)
    quoted.write(b',"root_uids":' + msgspec.json.encode(oids(graph, roots(graph))) + b"}")
    stream.write(b'"')


def main(folder: Path) -> int:
    """Write the graph in `folder` to standard output."""
    reserve()
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=ExportOrder)
    leave_with_parent()
    restrict(order.memory, order.seconds)
    write(codec.load(folder / GRAPH), order, sys.stdout.buffer)
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
