"""An application that uses time and memory, for load tests."""

from dropflow.apps.api import App, Context
from dropflow.apps.port_values import give
from dropflow.engine.component import Component, Parameter, Port
from dropflow.graph.templates import Kind

__all__ = ["ListAppendThrashingApp"]


class ListAppendThrashingApp(App):
    """Grows a list, one element after the other."""

    component = Component(
        name="ListAppendThrashingApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.ListAppendThrashingApp",
        description="Keeps a processor busy by growing a list of numbers, and writes the list.",
        parameters=(Parameter(name="size", type="Integer", default=100, minimum=0, description="Length of the list."),),
        ports=(Port(name="array", usage="OutputPort", type="Object.list", description="The list."),),
    )

    def run(self, context: Context) -> None:
        """Grow the list."""
        numbers: list[int] = []
        for number in range(self.parameters["size"]):
            numbers.append(number)  # noqa: PERF402 - slow on purpose
        give(context, context.outputs, numbers)
