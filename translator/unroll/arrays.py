"""Tiling: array nodes and the applications on them become one instance for each chunk.

Arrays say how they are divided (`array_nodes`), and applications how the chunks of their arrays meet: blockwise by
labels (`array_blockwise`), as a tree (`array_reduction`), or by the values that they share (`array_rechunk`). Nothing
of the graph is run. `array_stores` has what reads and writes stores.

An ordinary application next to an array gets the store of the whole array; ordinary data next to an application on
arrays go to each of its instances.
"""

from collections.abc import Iterable, Sequence

import msgspec

from dropflow.graph.templates import ORDER_PORT
from translator.stage_options import UnrollOptions
from translator.unroll.array_blockwise import tile_blockwise
from translator.unroll.array_draft import ArrayDraft
from translator.unroll.array_labels import BadLabelsError, parse_labels
from translator.unroll.array_nodes import (
    ARRAY,
    BLOCKWISE,
    RECHUNK,
    REDUCTION,
    array_app,
    is_array,
    read_array,
)
from translator.unroll.array_rechunk import tile_rechunk
from translator.unroll.array_reduction import tile_reduction
from translator.unroll.array_stores import join_store
from translator.unroll.layout import Layout
from translator.unroll.values import Findings, quantity
from translator.unroll.wires import Unit, Wire

__all__ = ["tile_arrays"]

_LARGEST = 2**31 - 1


def tile_arrays(layout: Layout, units: dict[str, Unit], wires: list[Wire], findings: Findings) -> list[Wire]:
    """Return the wires of the tiled graph. Units are changed, and those that tiling needs are added.

    Adds LG120 and LG130 to LG134; with such an error, what it is about is not tiled.
    """
    by_id = layout.graph.by_id
    nodes = [unit for unit in units if unit in by_id and is_array(by_id[unit])]
    apps = [unit for unit in units if unit in by_id and array_app(by_id[unit])]
    if not nodes and not apps:
        return wires
    draft = ArrayDraft(layout, units, {}, findings)
    for array in nodes:
        known = read_array(by_id[array], _most(layout.options), findings)
        if known is not None:
            draft.arrays[array] = known
            volume = quantity(known.node, "data_volume", 0.0, []) or known.chunk_bytes
            draft.tile(array, known.tiling.counts, category="Memory", component=ARRAY, weight=volume)
    sorted_wires = _Sorted(draft, set(nodes), set(apps), wires)
    for app in apps:
        _tile_app(draft, app, sorted_wires)
    for array in draft.arrays:
        join_store(
            draft,
            array,
            tiled=any(wire.target == array for wire in sorted_wires.out_of_apps),
            producers=[wire for wire in sorted_wires.written if wire.target == array],
            readers=[wire for wire in sorted_wires.read if wire.source == array],
        )
    return [*sorted_wires.others, *draft.wires]


def _most(options: UnrollOptions) -> int:
    return min(options.max_drops, _LARGEST)


class _Sorted:
    """The wires of a graph, by what tiling does with them.

    Parameters
    ----------
    draft : ArrayDraft
        The draft; LG134 is added to its findings.
    nodes, apps : set of str
        Arrays, and applications on arrays.
    wires : iterable of Wire
        All wires.
    """

    def __init__(self, draft: ArrayDraft, nodes: set[str], apps: set[str], wires: Iterable[Wire]) -> None:
        self.into_apps: list[Wire] = []
        self.out_of_apps: list[Wire] = []
        self.written: list[Wire] = []
        self.read: list[Wire] = []
        self.others: list[Wire] = []
        self._draft = draft
        made: dict[str, str] = {}
        for wire in wires:
            is_plain = wire.event or wire.source_port == ORDER_PORT
            if wire.target in nodes and wire.source in apps:
                if made.setdefault(wire.target, wire.source) != wire.source:
                    name = draft.units[wire.target].template.name
                    draft.report_wire(wire, f"several applications write array {name!r}", "use an array for each")
                self.out_of_apps.append(wire)
            elif is_plain:
                self.others.append(wire)
            elif wire.source in nodes:
                self._from_array(wire, wire.target in apps)
            elif wire.target in nodes:
                self._into_array(wire)
            else:
                if wire.source in apps:
                    self._refuse(wire, "the output of an application on arrays is not an array")
                self.others.append(wire)

    def _from_array(self, wire: Wire, is_array_app: bool) -> None:  # noqa: FBT001 - a table of two
        units = self._draft.units
        if not units[wire.target].is_app:
            self._refuse(wire, "an array is joined to other data")
        elif is_array_app and _takes_chunks(self._draft, wire):
            self.into_apps.append(wire)
        else:
            self.read.append(wire)

    def _into_array(self, wire: Wire) -> None:
        if self._draft.units[wire.source].is_app:
            self.written.append(wire)
        else:
            self._refuse(wire, "other data are joined to an array")

    def _refuse(self, wire: Wire, what: str) -> None:
        units = self._draft.units
        names = f"{units[wire.source].template.name!r} to {units[wire.target].template.name!r}"
        hint = "an array is between applications: make the other end an application, or an array"
        self._draft.report_wire(wire, f"the edge from {names}: {what}", hint)


def _takes_chunks(draft: ArrayDraft, wire: Wire) -> bool:
    """Whether an application on arrays takes an array by chunks: its labels name the port, or there is no store."""
    node = draft.layout.graph.by_id[wire.target]
    if array_app(node) != BLOCKWISE:
        return True
    try:
        inputs = parse_labels(str(node.value("labels") or "->")).inputs
    except BadLabelsError:
        return True
    known = draft.arrays.get(wire.source)
    return wire.target_port in inputs or "" in inputs or known is None or not known.store


def _tile_app(draft: ArrayDraft, app: str, wires: _Sorted) -> None:
    node = draft.layout.graph.by_id[app]
    ins = [wire for wire in wires.into_apps if wire.target == app]
    outs = [wire for wire in wires.out_of_apps if wire.source == app]
    if not outs:
        text, hint = f"application {node.name!r} works on arrays, and writes none", "connect an array to its output"
        draft.report("LG134", node, "dropclass", text, hint)
        return
    if node.embedded_in is not None:
        text = f"application {node.name!r} works on arrays, and is the application of a construct"
        draft.report("LG134", node, "dropclass", text, "put it beside the construct, or into it")
        return
    if any(end not in draft.arrays for end in (*(wire.source for wire in ins), *(wire.target for wire in outs))):
        return  # LG130 is about the array
    kind, last = array_app(node), app
    if kind == RECHUNK:
        last = tile_rechunk(draft, app, ins, outs)
    elif kind == REDUCTION:
        last = tile_reduction(draft, app, ins, outs)
    else:
        tile_blockwise(draft, app, ins, outs)
    if last != app:
        wires.others = _from_last(wires.others, app, last)


def _from_last(wires: Sequence[Wire], app: str, last: str) -> list[Wire]:
    """Return the wires with those that leave an application leaving its last step."""
    return [msgspec.structs.replace(wire, source=last) if wire.source == app else wire for wire in wires]
