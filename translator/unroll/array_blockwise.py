"""Blockwise applications: the chunks of the inputs and outputs meet by the labels of their axes, as in einsum.

The application has one instance for each chunk of its outputs. An axis of an input whose label no output has is given
whole: its chunks are joined. An axis of the outputs whose label an input does not have gets the same chunks of that
input at each index. A source of an array is a blockwise application without arrays as inputs.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dropflow.graph.tilings import Tiling
from translator.logical import LogicalNode
from translator.unroll.array_draft import ArrayDraft
from translator.unroll.array_labels import BadLabelsError, Labels, parse_labels
from translator.unroll.array_nodes import SOURCE, ArrayNode, array_app
from translator.unroll.tile_map import AxisPairs, all_of, broadcast, same
from translator.unroll.wires import Wire

__all__ = ["LabelledPort", "labelled_ports", "read_labels", "tile_blockwise"]

_EXAMPLE = "for example vis: tcx, gains: tx -> tcx, with the names of ports before the colons"


class LabelledPort(NamedTuple):
    """A port of an application with an array and the labels of its axes."""

    wire: Wire
    array: ArrayNode
    labels: tuple[str, ...]


def read_labels(draft: ArrayDraft, node: LogicalNode, outs: Sequence[Wire]) -> Labels | None:
    """Return the labels of an application; None, with LG131, if they cannot be used.

    A source needs none: its outputs have the labels of their axes in order.
    """
    text = str(node.value("labels") or "").strip()
    if not text and array_app(node) == SOURCE:
        axes = {wire.source_port: len(draft.arrays[wire.target].tiling.shape) for wire in outs}
        return Labels({}, {port: tuple(map(str, range(count))) for port, count in axes.items()})
    if not text:
        draft.report("LG131", node, "labels", f"application {node.name!r} has no labels", _EXAMPLE)
        return None
    try:
        return parse_labels(text)
    except BadLabelsError as error:
        shown = text if len(text) <= 80 else f"{text[:80]}..."  # noqa: PLR2004 - a line
        draft.report("LG131", node, "labels", f"labels of application {node.name!r} are {shown!r}: {error}", _EXAMPLE)
        return None


def labelled_ports(
    draft: ArrayDraft, node: LogicalNode, wires: Sequence[Wire], labels: Mapping[str, tuple[str, ...]], side: str
) -> list[LabelledPort] | None:
    """Return the ports with their arrays and labels; None, with LG131 or LG134, if they do not fit.

    Parameters
    ----------
    node : LogicalNode
        The application.
    wires : sequence of Wire
        Those of its inputs, or of its outputs, that lead to arrays.
    labels : mapping
        Labels by the name of the port.
    side : str
        ``input`` or ``output``.
    """
    names = [wire.target_port if side == "input" else wire.source_port for wire in wires]
    before, found = len(draft.findings), []
    for wire, name in zip(wires, names, strict=True):
        given = labels.get(name, labels.get("") if len(set(names)) == 1 else None)
        array = draft.arrays[wire.source if side == "input" else wire.target]
        axes = len(array.tiling.shape)
        if given is None:
            text = f"the {side} {name!r} of application {node.name!r} is an array, and has no labels"
            draft.report("LG131", node, "labels", text, _EXAMPLE)
        elif len(given) != axes:
            text = f"array {array.node.name!r} at the {side} {name!r} of {node.name!r} has {axes} axes, "
            draft.report("LG131", node, "labels", f"{text}and the labels {' '.join(given)!r}", _EXAMPLE)
        else:
            found.append(LabelledPort(wire, array, given))
    for name in labels:
        if name not in names and not (name == "" and len(set(names)) == 1):
            text = f"labels of application {node.name!r} name the {side} {name!r}, to which no array is connected"
            draft.report("LG131", node, "labels", text, f"connect an array; there are {', '.join(map(repr, names))}")
    if side == "input":
        _refuse_several(draft, node, wires)
    return found if len(draft.findings) == before else None


def _refuse_several(draft: ArrayDraft, node: LogicalNode, wires: Sequence[Wire]) -> None:
    """Add LG134 for arrays that meet at a port, except for one from before a loop and one from its last iteration.

    These have the same chunks: an instance of the application gets one or the other.
    """
    for port in {wire.target_port: None for wire in wires}:
        at_port = [wire for wire in wires if wire.target_port == port]
        if len(at_port) == 1:
            continue
        carries = sum(wire.closes for wire in at_port)
        if carries == 0 or len(at_port) - carries > 1:
            text = f"several arrays are connected to the port {port!r} of {node.name!r}"
            hint = "give each array a port of its own; of two at one port, one comes from before a loop, and the edge "
            draft.report_wire(at_port[-1], text, f"{hint}of the other one closes the loop")
            continue
        first, *others = (draft.arrays[wire.source] for wire in at_port)
        for other in others:
            if other.tiling != first.tiling:
                text = f"{first.node.name!r} and {other.node.name!r} at the port {port!r} of {node.name!r} differ in "
                hint = "give them the same shape and chunks, or put an ArrayRechunk before the edge closes the loop"
                draft.report("LG132", node, "labels", f"{text}shape or chunks: a loop carries one to the other", hint)


def tile_blockwise(draft: ArrayDraft, app: str, ins: Sequence[Wire], outs: Sequence[Wire]) -> None:
    """Tile a blockwise application, and add the wires of its arrays.

    Adds LG131 for labels that do not fit its ports, and LG132 for arrays that differ at a label.
    """
    node = draft.layout.graph.by_id[app]
    labels = read_labels(draft, node, outs)
    if labels is None:
        return
    inputs = labelled_ports(draft, node, ins, labels.inputs, "input")
    outputs = labelled_ports(draft, node, outs, labels.outputs, "output")
    if inputs is None or outputs is None or not _agree(draft, node, inputs, outputs):
        return
    grid = outputs[0].labels
    counts = dict(zip(grid, outputs[0].array.tiling.counts, strict=True))
    draft.tile(app, list(counts.values()))
    for port in inputs:
        draft.join(port.wire.source, app, _input_pairs(port, grid, counts), port.wire)
    for port in outputs:
        pairs = [same(counts[label], place, port.labels.index(label)) for place, label in enumerate(grid)]
        draft.join(app, port.wire.target, pairs, port.wire)
    draft.tell(
        app,
        {
            "axes": len(grid),
            "inputs": {
                port.wire.target_port: [
                    1 if label in counts else count
                    for label, count in zip(port.labels, port.array.tiling.counts, strict=True)
                ]
                for port in inputs
            },
            "outputs": {
                port.wire.source_port: {**port.array.record, "at": [grid.index(label) for label in port.labels]}
                for port in outputs
            },
        },
    )


def _input_pairs(port: LabelledPort, grid: Sequence[str], counts: Mapping[str, int]) -> list[AxisPairs]:
    pairs = [
        same(count, axis, grid.index(label)) if label in counts else all_of(count, axis)
        for axis, (label, count) in enumerate(zip(port.labels, port.array.tiling.counts, strict=True))
    ]
    return [*pairs, *(broadcast(counts[label], place) for place, label in enumerate(grid) if label not in port.labels)]


def _agree(
    draft: ArrayDraft, node: LogicalNode, inputs: Sequence[LabelledPort], outputs: Sequence[LabelledPort]
) -> bool:
    """Return whether arrays agree at their labels; adds LG131 and LG132."""
    before = len(draft.findings)
    first = outputs[0]
    for port in outputs[1:]:
        if set(port.labels) != set(first.labels):
            text = f"outputs of application {node.name!r} have the labels {_spelled(first)} and {_spelled(port)}"
            draft.report("LG131", node, "labels", text, "give all outputs of an application the same labels")
    seen: dict[str, tuple[ArrayNode, int]] = {}
    for port in (*outputs, *inputs):
        for axis, label in enumerate(port.labels):
            other, place = seen.setdefault(label, (port.array, axis))
            is_whole = label not in first.labels
            if not _same_axis(port.array.tiling, axis, other.tiling, place, is_whole=is_whole):
                draft.report(
                    "LG132", node, "labels", differing(label, node, (port.array, axis), (other, place)), _REMEDY
                )
    return len(draft.findings) == before


_REMEDY = "correct shape or chunks, or put an ArrayRechunk between them"


def differing(label: str, node: LogicalNode, *ends: tuple[ArrayNode, int]) -> str:
    """Return the text of LG132."""
    said = (f"{array.node.name!r} has {_axis_text(array.tiling, axis)}" for array, axis in ends)
    return f"at the label {label!r} of application {node.name!r}, {' and '.join(said)}"


def _same_axis(one: Tiling, axis: int, other: Tiling, place: int, *, is_whole: bool) -> bool:
    if is_whole:
        return one.shape[axis] == other.shape[place]
    return one.axis(axis) == other.axis(place)


def _axis_text(tiling: Tiling, axis: int) -> str:
    length, size = tiling.axis(axis)
    if isinstance(size, int):
        return f"{length:,} values in chunks of {size:,}"
    return f"{length:,} values in {len(size):,} chunks of different lengths"


def _spelled(port: LabelledPort) -> str:
    return repr(" ".join(port.labels))
