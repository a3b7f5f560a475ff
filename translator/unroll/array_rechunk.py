"""Changes of chunks: pieces of the old chunks become the new ones.

Both tilings together divide the array into pieces. Where each new chunk consists of whole old ones, they are joined;
where each old chunk consists of whole new ones, it is cut. Otherwise one application cuts each old chunk, and another
joins the pieces of each new one, so that only the pieces move between nodes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dropflow.graph.tilings import Tiling, common_bounds
from translator.logical import LogicalNode
from translator.unroll.array_draft import ArrayDraft, identity
from translator.unroll.array_nodes import ArrayNode
from translator.unroll.tile_map import AxisPairs, overlaps
from translator.unroll.wires import Wire

__all__ = ["tile_rechunk"]


def tile_rechunk(draft: ArrayDraft, app: str, ins: Sequence[Wire], outs: Sequence[Wire]) -> str:
    """Tile an application that changes chunks, and add the wires of its arrays. Returns the unit with its result.

    Adds LG132 for arrays of different shapes, and LG134 for several.
    """
    node = draft.layout.graph.by_id[app]
    if len(ins) != 1 or len({wire.target for wire in outs}) != 1:
        wire = (*ins, *outs)[-1]
        text = f"application {node.name!r} changes the chunks of {len(ins)} arrays into those of {len(outs)}"
        hint = "use one ArrayRechunk for each array"
        if any(one.closes for one in ins):
            hint = "begin each iteration with an ArrayBlockwise, and change the chunks of what it makes"
        draft.report_wire(wire, text, hint)
        return app
    old, new = draft.arrays[ins[0].source], draft.arrays[outs[0].target]
    if not _fits(draft, node, old, new):
        return app
    pieces = _pieces(old.tiling, new.tiling)
    steps = overlaps_between(old.tiling, pieces), overlaps_between(pieces, new.tiling)
    if pieces in (old.tiling, new.tiling):
        is_joined = pieces == old.tiling
        draft.tile(app, (new if is_joined else old).tiling.counts)
        _tell(draft, app, "join" if is_joined else "cut", old.tiling.record(), new.record)
        joined = steps[1] if is_joined else identity(old.tiling.counts)
        draft.join(ins[0].source, app, joined, ins[0])
        for wire in outs:
            draft.join(app, wire.target, identity(new.tiling.counts) if is_joined else steps[0], wire)
        return app
    draft.tile(app, old.tiling.counts)
    size = old.chunk_bytes * old.tiling.number / pieces.number
    piece = draft.add_data(app, "piece", f"pieces of {node.name}", pieces.counts, weight=size)
    last = draft.add_step(app, "join", f"join {node.name}", new.tiling.counts)
    _tell(draft, app, "cut", old.tiling.record(), {**pieces.record(), "dtype": new.dtype})
    _tell(draft, last, "join", pieces.record(), new.record)
    draft.join(ins[0].source, app, identity(old.tiling.counts), ins[0])
    draft.join(app, piece, steps[0])
    draft.join(piece, last, steps[1])
    for wire in outs:
        draft.join(last, wire.target, identity(new.tiling.counts), wire)
    return last


def overlaps_between(one: Tiling, other: Tiling) -> list[AxisPairs]:
    """Join the chunks of two tilings of an array that have values in common."""
    return [overlaps(one, other, axis) for axis in range(len(one.shape))]


def _tell(draft: ArrayDraft, app: str, step: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    draft.tell(app, {"axes": len(before["shape"]), "step": step, "from": before, "to": after})


def _fits(draft: ArrayDraft, node: LogicalNode, old: ArrayNode, new: ArrayNode) -> bool:
    if old.tiling.shape == new.tiling.shape:
        return True
    text = f"{node.name!r} changes the chunks of {old.node.name!r}, of shape {list(old.tiling.shape)}, into those of "
    text += f"{new.node.name!r}, of shape {list(new.tiling.shape)}"
    draft.report("LG132", new.node, "shape", text, "give both arrays the same shape")
    return False


def _pieces(one: Tiling, other: Tiling) -> Tiling:
    """Return the tiling that has the bounds of both."""
    sizes = [np.diff(common_bounds(one.bounds(axis), other.bounds(axis))).tolist() for axis in range(len(one.shape))]
    return Tiling.parse(list(one.shape), sizes)
