"""The application of a GroupBy construct that has none of its own."""

from dropflow.apps.api import App, Context
from dropflow.apps.port_values import give, usable, value_of
from dropflow.engine.component import Component, Port
from dropflow.graph.templates import Kind

__all__ = ["GroupByApp"]


class GroupByApp(App):
    """Puts the data of one group into one list."""

    component = Component(
        name="GroupByApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dropflow.apps.GroupByApp",
        description="Collects its inputs into one list, in order. Every GroupBy that names no application uses it.",
        ports=(
            Port(name="input", usage="InputPort", description="The members of the group."),
            Port(name="output", usage="OutputPort", type="Object.list", description="The list of their values."),
        ),
    )

    def run(self, context: Context) -> None:
        """Collect."""
        give(context, context.outputs, [value_of(context, data) for data in usable(context)])
