"""The graph of `recovery.py`, and the application that its worker processes import."""

from typing import ClassVar

import numpy as np
from recovery_work import Shape, step

from dropflow import App, Context, Parameter, Port, component
from dropflow.graph.build import from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Axis, Kind, Link, Template

__all__ = ["StepApp", "stages"]

_MEMORY = "dlg.data.drops.memory.InMemoryDROP"


@component(
    parameters=[
        Parameter(name="log", type="String", default="", description="File of records; none if empty."),
        Parameter(name="seconds", type="Float", default=0.0, minimum=0.0, description="Seconds to sleep."),
        Parameter(name="branches", type="Integer", default=1, minimum=1, description="Branches of each stage."),
    ],
    ports=[
        Port(name="before", usage="InputPort", encoding="json", description="Results of the stage before."),
        Port(name="result", usage="OutputPort", encoding="json", description="The result."),
    ],
)
class StepApp(App):
    """One step of `recovery_work`."""

    waits: ClassVar[bool] = False

    def run(self, context: Context) -> None:
        """Do the step of this drop."""
        branches = self.parameters["branches"]
        stage, branch = context.index
        inputs = [int(data.read()) for data in context.inputs]
        number = stage * branches + branch
        result = step(self.parameters["log"], self.parameters["seconds"], number, branches, inputs)
        for output in context.outputs:
            output.write(str(result))


def stages(shape: Shape, parts: int, log: str = "") -> PhysicalGraph:
    """Return the graph of the steps: first all applications, then their data, each in order of stages and branches.

    Each part has neighbouring branches, so that few edges are cut.
    """
    steps, branches = shape.steps, shape.branches
    axes = (Axis("stages", "stages", "loop", shape.stages), Axis("branches", "branches", "scatter", branches))
    each = np.arange(steps, dtype=np.int32)
    later = each[branches:]
    stage, branch = np.divmod(later, branches)
    own, neighbour = later - branches, (stage - 1) * branches + (branch + 1) % branches
    arguments = (
        Argument(name="log", value=log),
        Argument(name="seconds", value=shape.seconds),
        Argument(name="branches", value=branches),
    )
    return from_columns(
        name="stages",
        prefix="bench",
        templates=(
            Template(
                key="a",
                name="step",
                kind=Kind.APP,
                component=f"{StepApp.__module__}.{StepApp.__name__}",
                axes=axes,
                arguments=arguments,
            ),
            Template(key="d", name="result", kind=Kind.DATA, component=_MEMORY, axes=axes),
        ),
        links=(
            Link(source=0, target=1, source_port="result"),
            Link(source=1, target=0, target_port="before", carry=True),
        ),
        template=np.repeat(np.arange(2, dtype=np.int32), steps),
        instance=np.concatenate([each, each]),
        source=np.concatenate([each, steps + own, steps + neighbour]),
        target=np.concatenate([steps + each, later, later]),
        link=np.repeat(np.array([0, 1, 1], dtype=np.int32), [steps, len(later), len(later)]),
        part=np.tile(each % branches * parts // branches, 2),
    )
