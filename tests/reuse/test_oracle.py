"""What runs is what has to, on random graphs and edits, against a slow and obvious model of it."""

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dropflow
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.reuse.log import taken_results
from dropflow.sessions import local_run

CODE = """
def f(*values, shift=0, modulus=7, **more):
    return (sum(map(int, (*values, *more.values()))) + shift) % modulus
"""


class Shape:
    """A random acyclic graph of functions: each adds up what some earlier ones gave, and a shift, modulo a number."""

    def __init__(self, inputs: list[list[int]], shifts: list[int], moduli: list[int]) -> None:
        self.inputs = [sorted({one % row for one in before}) if row else [] for row, before in enumerate(inputs)]
        self.shifts, self.moduli = list(shifts[: len(inputs)]), list(moduli[: len(inputs)])

    @property
    def leaves(self) -> set[int]:
        """The functions whose values nothing reads."""
        return set(range(len(self.inputs))) - {one for before in self.inputs for one in before}

    def graph(self) -> PhysicalGraph:
        """Return it as a graph."""
        drawing = GraphBuilder("random")
        for row, before in enumerate(self.inputs):
            fields = [Argument(name="func_name", value="f"), Argument(name="func_code", value=CODE)]
            values = {"shift": self.shifts[row], "modulus": self.moduli[row]}
            fields += [
                Argument(name=key, value=value, type="Integer", parameter_type="ApplicationArgument")
                for key, value in values.items()
            ]
            fields += [Argument(name=f"x{one}", usage="InputPort", encoding="json") for one in before]
            fields += [Argument(name="out", usage="OutputPort", encoding="json")]
            drawing.app(f"f{row}", component="dlg.apps.pyfunc.PyFuncApp", category="PyFuncApp", arguments=tuple(fields))
            drawing.data(f"d{row}", component="dlg.data.drops.memory.InMemoryDROP")
            drawing.connect(f"f{row}", f"d{row}", source_port="out")
            for one in before:
                drawing.connect(f"d{one}", f"f{row}", target_port=f"x{one}")
        return drawing.build()


class Model:
    """The store as it should be: a set of what was computed, by code and by values."""

    def __init__(self) -> None:
        self.deep: set[Any] = set()
        self.by_values: set[Any] = set()

    def run(self, shape: Shape) -> set[int]:
        """Return which functions run, and remember them."""
        deep: list[Any] = []
        value: list[int] = []
        for row, before in enumerate(shape.inputs):
            own = (shape.shifts[row], shape.moduli[row], tuple(before))
            deep.append((own, tuple(deep[one] for one in before)))
            value.append((sum(value[one] for one in before) + shape.shifts[row]) % shape.moduli[row])
        needed, asks = shape.leaves, set()
        for row in reversed(range(len(shape.inputs))):
            if row in needed and deep[row] not in self.deep:
                asks.add(row)
                needed |= set(shape.inputs[row])
        ran = set()
        for row in sorted(asks):
            key = (deep[row][0], tuple(value[one] for one in shape.inputs[row]))
            if key not in self.by_values:
                ran.add(row)
            self.by_values.add(key)
            self.deep.add(deep[row])
        return ran


_SMALL = st.integers(0, 3)


@st.composite
def _shapes(draw: st.DrawFn) -> Shape:
    rows = draw(st.integers(1, 6))
    inputs = draw(st.lists(st.lists(st.integers(0, 5), max_size=2), min_size=rows, max_size=rows))
    numbers = st.lists(_SMALL, min_size=rows, max_size=rows)
    return Shape(inputs, draw(numbers), [2 + one for one in draw(numbers)])


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shape=_shapes(), edits=st.lists(st.tuples(st.integers(0, 5), st.booleans(), _SMALL), min_size=1, max_size=3))
def test_what_runs_is_what_has_to(
    tmp_path_factory: Any, monkeypatch: Any, shape: Shape, edits: list[tuple[int, bool, int]]
) -> None:
    """After each edit of a parameter, and the values at the end are those of a run without a store."""
    folder: Path = tmp_path_factory.mktemp("oracle")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    model = Model()
    for number, edit in enumerate([None, *edits, None]):
        if edit is not None:
            row, is_shift, by = edit
            row %= len(shape.inputs)
            (shape.shifts if is_shift else shape.moduli)[row] = by if is_shift else 2 + by
        graph = shape.graph()
        place = folder / str(number)
        result = local_run.run(
            graph, directory=place, runner="inline", reuse=True, store=str(folder / "store"), check=True
        )
        assert result.status.name == "FINISHED", result.failures
        taken = {graph.templates[graph.template[drop]].name for drop in taken_results(place)}
        ran = {row for row in range(len(shape.inputs)) if f"f{row}" not in taken}
        assert ran == model.run(shape)
        assert _values(place) == _values(folder / "plain", graph)


def _values(place: Path, graph: PhysicalGraph | None = None) -> dict[str, bytes]:
    if graph is not None:
        dropflow.run(graph, directory=place, runner="inline", overwrite=True)
    return {path.name: path.read_bytes() for path in (place / "results").iterdir()}
