"""The expected final state of every drop, computed recursively and slowly from the rules of the design."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.states import DropState

__all__ = ["expected_states"]

C, E, S = DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED


def expected_states(
    graph: PhysicalGraph, *, fails: Mapping[int, int], leaves_out: Mapping[int, Sequence[int]]
) -> list[DropState]:
    """Return the final state of every drop.

    Only for graphs without effective inputs, whose result does not depend on the order of events.

    Parameters
    ----------
    fails : mapping
        How many attempts of an application (or root) fail before one succeeds.
    leaves_out : mapping
        Outputs that an application skips when it succeeds.
    """
    before = graph.predecessors
    done: dict[int, DropState] = {}

    def attempt(drop: int) -> DropState:
        return C if fails.get(drop, 0) < graph.templates[drop].tries else E

    def reported(source: int, drop: int) -> DropState:
        state = final(source)
        left_out = graph.templates[source].kind is Kind.APP and drop in leaves_out.get(source, ())
        return S if state is C and left_out else state

    def final(drop: int) -> DropState:
        if drop not in done:
            done[drop] = settle(drop)
        return done[drop]

    def settle(drop: int) -> DropState:
        template = graph.templates[drop]
        sources = before.neighbour[before.ptr[drop] : before.ptr[drop + 1]].tolist()
        reports = [reported(source, drop) for source in sources]
        if not reports:
            return attempt(drop)
        errors, skips = reports.count(E), reports.count(S)
        is_app = template.kind is Kind.APP
        too_many = 100 * errors > Decimal(str(template.error_threshold)) * len(reports) if is_app else errors > 0
        if too_many:
            return E
        if skips == len(reports) or (skips and not template.block_skip):
            return S
        return attempt(drop) if is_app else C

    return [final(drop) for drop in range(graph.drops)]
