"""An application for a first graph."""

from dropflow.apps.api import App, Context
from dropflow.apps.port_values import usable, value_of
from dropflow.engine.component import Component, Parameter, Port
from dropflow.errors import AppError
from dropflow.graph.templates import Kind

__all__ = ["HelloWorldApp"]


class HelloWorldApp(App):
    """Writes a greeting."""

    component = Component(
        name="HelloWorldApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.HelloWorldApp",
        description="Writes 'Hello <greet>' as text, or 'Hello, <whom>' with the content of its one input.",
        parameters=(Parameter(name="greet", default="World", description="Whom to greet when there is no input."),),
        ports=(
            Port(name="greet_from", usage="InputPort", description="Whom to greet; of a list, the first."),
            Port(name="hello", usage="OutputPort", type="String", encoding="utf-8", description="The greeting."),
        ),
    )

    def run(self, context: Context) -> None:
        """Greet."""
        greeting = f"Hello {self.parameters['greet']}"
        inputs = usable(context)
        if len(inputs) > 1:
            raise AppError(
                f"{len(inputs)} inputs are connected, HelloWorldApp takes one",
                hint="connect one input, or gather them first",
            )
        if inputs:
            greeting = f"Hello, {_first(value_of(context, inputs[0]))}"
        for output in context.outputs:
            output.write(greeting)


def _first(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, str) or not hasattr(value, "__len__") or not hasattr(value, "__getitem__") or not len(value):
        return value
    return value if isinstance(value, dict) else value[0]
