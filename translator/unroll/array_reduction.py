"""Reductions: each chunk is reduced by itself, and the results are combined in a tree.

Labels that only the input has are those of the reduced axes: ``tcx -> cx``. Functions of the graph may also make axes
of one chunk with labels of their own, as gridding does: ``tcx -> cuv``. A combining application takes at most as many
results as its field `split` says.
"""

from collections.abc import Sequence
from typing import Any

from translator.logical import LogicalNode
from translator.unroll.array_blockwise import LabelledPort, differing, labelled_ports, read_labels
from translator.unroll.array_draft import ArrayDraft, identity
from translator.unroll.tile_map import all_of, broadcast, grouped, same
from translator.unroll.values import whole
from translator.unroll.wires import Wire

__all__ = ["tile_reduction"]

_SPLIT = 8


def tile_reduction(draft: ArrayDraft, app: str, ins: Sequence[Wire], outs: Sequence[Wire]) -> str:
    """Tile a reduction, and add the wires of its arrays. Returns the unit with its result.

    Adds LG131 for labels that are not those of a reduction, and LG132 for arrays that differ at a label.
    """
    node = draft.layout.graph.by_id[app]
    labels = read_labels(draft, node, outs)
    if labels is None:
        return app
    inputs = labelled_ports(draft, node, ins, labels.inputs, "input")
    outputs = labelled_ports(draft, node, outs, labels.outputs, "output")
    if inputs is None or outputs is None or not _fits(draft, node, inputs, outputs):
        return app
    given = inputs[0]
    kept = [label in outputs[0].labels for label in given.labels]
    width = _width(whole(node, "split", _SPLIT, draft.findings, lowest=2), given.array.tiling.counts, kept)
    counts = given.array.tiling.counts
    draft.tile(app, counts)
    draft.join(given.wire.source, app, identity(counts), given.wire)
    steps = [app]
    while any(count > 1 and not keep for count, keep in zip(counts, kept, strict=True)):
        fewer = tuple(count if keep else -(-count // width) for count, keep in zip(counts, kept, strict=True))
        tree = [
            same(count, axis, axis) if keep else grouped(count, width, axis, axis)
            for axis, (count, keep) in enumerate(zip(counts, kept, strict=True))
        ]
        name = node.name
        partial = draft.add_data(app, "partial", f"parts of {name}", counts, weight=outputs[0].array.chunk_bytes)
        draft.join(steps[-1], partial, identity(counts))
        steps.append(draft.add_step(app, "combine", f"combine {name}", fewer))
        draft.join(partial, steps[-1], tree)
        counts = fewer
    last = steps[-1]
    for port in outputs:
        pairs = [
            same(count, axis, port.labels.index(label)) if keep else all_of(1, axis)
            for axis, (label, count, keep) in enumerate(zip(given.labels, counts, kept, strict=True))
        ]
        pairs += [broadcast(1, axis) for axis, label in enumerate(port.labels) if label not in given.labels]
        draft.join(last, port.wire.target, pairs, port.wire)
    for number, step in enumerate(steps):
        draft.tell(step, _told(number, kept, given, outputs, is_last=step == last))
    return last


def _told(
    number: int, kept: list[bool], given: LabelledPort, outputs: Sequence[LabelledPort], *, is_last: bool
) -> dict[str, Any]:
    return {
        "axes": len(kept),
        "input": given.wire.target_port,
        "step": "combine" if number else "chunk",
        "last": is_last,
        "array": given.array.record,
        "reduced": [axis for axis, keep in enumerate(kept) if not keep],
        "outputs": {
            port.wire.source_port: {
                **port.array.record,
                "at": [given.labels.index(label) if label in given.labels else -1 for label in port.labels],
            }
            for port in outputs
        },
    }


def _width(split: int, counts: Sequence[int], kept: Sequence[bool]) -> int:
    """Return how many results are combined along each reduced axis, so that at most `split` are at a time."""
    axes = sum(count > 1 and not keep for count, keep in zip(counts, kept, strict=True))
    width = 2
    while axes and (width + 1) ** axes <= split:
        width += 1
    return width


_EXAMPLE = "for example tcx -> cx"


def _fits(
    draft: ArrayDraft, node: LogicalNode, inputs: Sequence[LabelledPort], outputs: Sequence[LabelledPort]
) -> bool:
    before = len(draft.findings)
    if len(inputs) != 1:
        text = f"reduction {node.name!r} has {len(inputs)} arrays as inputs, not one"
        carried = any(port.wire.closes for port in inputs)
        hint = "begin each iteration with an ArrayBlockwise, and reduce what it makes" if carried else _EXAMPLE
        draft.report("LG131", node, "labels", text, hint)
        return False
    given = inputs[0]
    for port in outputs:
        remaining = tuple(label for label in given.labels if label in port.labels)
        if remaining != port.labels and str(node.value("method", "sum")) != "function":
            text = f"reduction {node.name!r} has the labels {' '.join(given.labels)!r} -> {' '.join(port.labels)!r}"
            hint = "the labels of its output are some of those of its input, in the same order, or it has functions"
            draft.report("LG131", node, "labels", text, hint)
        elif port.labels != outputs[0].labels:
            text = f"outputs of reduction {node.name!r} have different labels"
            draft.report("LG131", node, "labels", text, "give all its outputs the same labels")
        else:
            for axis, label in enumerate(port.labels):
                if label not in given.labels:
                    if port.array.tiling.counts[axis] > 1:
                        text = (
                            f"reduction {node.name!r} makes the label {label!r}, which has several chunks in its output"
                        )
                        draft.report(
                            "LG132", node, "labels", text, "give it one chunk, and put an ArrayRechunk after it"
                        )
                    continue
                place = given.labels.index(label)
                if port.array.tiling.axis(axis) != given.array.tiling.axis(place):
                    text = differing(label, node, (given.array, place), (port.array, axis))
                    draft.report("LG132", node, "labels", text, "give the output the chunks of the input")
    return len(draft.findings) == before
