"""Hypothesis strategies for physical graphs, and in which states their drops end by the rules of the design."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from hypothesis import strategies as st

from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.states import DropState


@st.composite
def graphs(draw: st.DrawFn, *, most: int = 14) -> PhysicalGraph:
    """Draw acyclic graphs of up to `most` drops, with various thresholds, tries, `block_skip` and effective inputs.

    Data may have several producers, none, or no consumers; applications may have no inputs or no outputs.
    """
    kinds = draw(st.lists(st.booleans(), min_size=1, max_size=most))
    builder = GraphBuilder("random")
    for number, is_app in enumerate(kinds):
        block_skip = draw(st.booleans())
        if is_app:
            builder.app(
                f"A{number}",
                block_skip=block_skip,
                error_threshold=draw(st.sampled_from([0.0, 0.0, 33.0, 50.0, 99.5, 100.0])),
                tries=draw(st.sampled_from([1, 1, 2, 3])),
                effective_inputs=draw(st.sampled_from([-1, -1, 1, 2, 99])),
            )
        else:
            builder.data(f"d{number}", block_skip=block_skip)
    names = [f"{'A' if is_app else 'd'}{number}" for number, is_app in enumerate(kinds)]
    pairs = [
        (source, target)
        for number, source in enumerate(names)
        for target in names[number + 1 :]
        if source[0] != target[0]
    ]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=3 * most)) if pairs else []
    for source, target in chosen:
        builder.connect(source, target)
    return builder.build()


@st.composite
def pipelines(draw: st.DrawFn, *, most: int = 10) -> PhysicalGraph:
    """Draw acyclic graphs of up to `most` applications whose data have one producer each, so that they can stream."""
    builder = GraphBuilder("pipelines")
    names: list[str] = []
    for number in range(draw(st.integers(1, most))):
        threshold, tries = draw(st.sampled_from([0.0, 0.0, 50.0, 100.0])), draw(st.sampled_from([1, 2, 3]))
        app = f"A{number}"
        builder.app(app, block_skip=draw(st.booleans()), error_threshold=threshold, tries=tries, effective_inputs=-1)
        for source in draw(st.lists(st.sampled_from(names), unique=True, max_size=3)) if names else []:
            builder.connect(source, app)
        for output in range(draw(st.integers(0, 2))):
            names.append(f"d{number}-{output}")
            builder.data(names[-1], block_skip=draw(st.booleans()))
            builder.connect(app, names[-1])
    return builder.build()


# The expected final state of every drop, computed recursively and slowly from the rules of the design.

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
        sources = before.of(drop)
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
