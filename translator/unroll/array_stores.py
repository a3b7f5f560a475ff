"""Stores of arrays: the drops that write chunks into zarr or read them, and the data that others wait for.

An array that an application on arrays makes is in memory, chunk by chunk. With a store, one application opens the
store, others write one chunk each, and a last one completes the data drop of the whole store, which ordinary
applications read. If an ordinary application writes the store, or nothing does, chunks are read from it.

A relative path is a directory of the session. Then all that writes it stays on one node, and the whole store is a
content like others. Other stores must be reachable from each node.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from dropflow.graph.templates import Argument
from translator.unroll.array_draft import ArrayDraft, identity
from translator.unroll.array_nodes import ArrayNode
from translator.unroll.levels import STORE, Level, Levels
from translator.unroll.wires import Wire

__all__ = ["CLOSE_STORE", "OPEN_STORE", "READ_CHUNK", "STORED", "WRITE_CHUNK", "join_store"]

STORED = "dropflow.data.ArrayStore"
DIRECTORY = "dlg.data.drops.directory.DirectoryDROP"
OPEN_STORE, CLOSE_STORE = "dropflow.apps.ArrayOpenStore", "dropflow.apps.ArrayCloseStore"
WRITE_CHUNK, READ_CHUNK = "dropflow.apps.ArrayWriteChunk", "dropflow.apps.ArrayReadChunk"

_EVERYWHERE = ("/", "$")
"""Beginnings of paths that are the same on every node."""
_NO_STORE = "set its field store to the path of a zarr array, such as image.zarr"


def join_store(
    draft: ArrayDraft, array: str, *, tiled: bool, producers: Sequence[Wire], readers: Sequence[Wire]
) -> None:
    """Add what writes or reads the store of an array, and the wires of ordinary applications.

    Parameters
    ----------
    array : str
        The array.
    tiled : bool
        Whether an application on arrays makes its chunks.
    producers, readers : sequences of Wire
        Wires from and to ordinary applications.
    """
    known = draft.arrays[array]
    if not _is_possible(draft, known, tiled=tiled, producers=producers, readers=readers):
        return
    if tiled:
        if known.store:
            _redirect(draft, _written(draft, array, known), readers)
        return
    stored = ""
    if producers or readers:
        stored = _directory(draft, array, known)
        draft.wires += [msgspec.structs.replace(wire, target=stored) for wire in producers]
        _redirect(draft, stored, readers)
    counts = known.tiling.counts
    read = draft.add_app(array, "read", f"read {known.node.name}", READ_CHUNK, counts)
    draft.tell(read, _told(known, len(counts)))
    if producers:
        draft.connect(stored, read, target_port="store")
    draft.join(read, array, identity(counts))


def _redirect(draft: ArrayDraft, stored: str, readers: Sequence[Wire]) -> None:
    draft.wires += [msgspec.structs.replace(wire, source=stored) for wire in readers]


def _is_possible(
    draft: ArrayDraft, known: ArrayNode, *, tiled: bool, producers: Sequence[Wire], readers: Sequence[Wire]
) -> bool:
    node, before = known.node, len(draft.findings)
    if tiled and producers:
        text = f"array {node.name!r} is made by an application on arrays, and written by an ordinary one"
        draft.report_wire(producers[0], text, "use an array for each")
    elif not known.store and not tiled:
        who = "an ordinary application writes it" if producers else "no application makes it"
        draft.report("LG133", node, "store", f"array {node.name!r} has no store, and {who}", _NO_STORE)
    elif not known.store and readers:
        name = draft.units[readers[0].target].template.name
        text = f"array {node.name!r} has no store, and {name!r} does not take its chunks"
        hint = f"{_NO_STORE}, whose path the application gets; or name its port in the labels of the application"
        draft.report("LG133", node, "store", text, hint)
    elif known.store and tiled and not known.tiling.is_regular:
        text = f"array {node.name!r} has chunks of different lengths, which a zarr array cannot have"
        draft.report("LG133", node, "chunks", text, "give all chunks of an axis one length, or put it into no store")
    elif not tiled and not producers and not known.store.startswith(_EVERYWHERE):
        text = f"array {node.name!r} is read from {known.store!r}, a relative path, and no application writes it there"
        draft.report("LG133", node, "store", text, "use an absolute path")
    return len(draft.findings) == before


def _written(draft: ArrayDraft, array: str, known: ArrayNode) -> str:
    """Add the applications that write a store, and return the data drop of the whole."""
    name, counts = known.node.name, known.tiling.counts
    inside = _together(draft, array, known)
    opening = draft.add_app(array, "open", f"open {name}", OPEN_STORE, inside=inside)
    write = draft.add_app(array, "write", f"write {name}", WRITE_CHUNK, counts, inside=inside)
    closing = draft.add_app(array, "close", f"close {name}", CLOSE_STORE, inside=inside)
    draft.tell(write, _told(known, len(counts)))
    draft.tell(closing, _told(known, 0))
    mark: dict[str, Any] = {"inside": inside, "component": _MEMORY, "arguments": _MARK, "weight": 0.0}
    opened = draft.add_data(array, "opened", f"{name} is open", **mark)
    written = draft.add_data(array, "written", f"chunks of {name} that are stored", counts, **mark)
    stored = draft.add_data(
        array,
        "store",
        f"store of {name}",
        inside=inside,
        component=STORED,
        category="Directory",
        arguments=(Argument(name="dirname", value=known.store),),
        weight=known.chunk_bytes * known.tiling.number,
    )
    draft.tell(opening, {**_told(known, 0), "key": draft.units[stored].template.key})
    draft.connect(opening, opened, source_port="opened")
    draft.connect(opened, write, target_port="opened")
    draft.join(array, write, identity(counts), target_port="chunk")
    draft.join(write, written, identity(counts), source_port="written")
    draft.connect(opened, closing, target_port="opened")
    draft.connect(written, closing, target_port="written")
    draft.connect(closing, stored, source_port="store")
    return stored


_MEMORY = "dlg.data.drops.memory.InMemoryDROP"
_MARK = (Argument(name="replicas", type="Integer", value=1),)
"""A mark says that a chunk is in the store of this node: it must not survive that node elsewhere."""


def _together(draft: ArrayDraft, array: str, known: ArrayNode) -> Levels:
    """Return the level that keeps what writes a directory of the session on one node."""
    if known.store.startswith(_EVERYWHERE):
        return ()
    return (Level(f"{draft.units[array].template.key}-store", f"store of {known.node.name}", STORE, 1),)


def _directory(draft: ArrayDraft, array: str, known: ArrayNode) -> str:
    """Add the data drop of a store that an ordinary application writes, or that exists."""
    fields = (
        Argument(name="dirname", value=known.store),
        Argument(name="check_exists", type="Boolean", value=True, parameter_type="ComponentParameter"),
    )
    size = known.chunk_bytes * known.tiling.number
    kinds: dict[str, Any] = {"component": DIRECTORY, "category": "Directory", "arguments": fields}
    return draft.add_data(array, "store", f"store of {known.node.name}", weight=size, **kinds)


def _told(known: ArrayNode, axes: int) -> dict[str, object]:
    told = {"axes": axes, "array": known.record, "store": known.store}
    return told if known.compressor is None else {**told, "compressor": known.compressor}
