"""An application that takes one element from an array: the body of an array loop."""

from typing import Any

from dropflow.apps.api import App, Context, InputData, OutputData
from dropflow.apps.port_values import give, usable, value_of
from dropflow.engine.component import Component, Port
from dropflow.engine.parameters import fold
from dropflow.errors import AppError
from dropflow.graph.templates import Kind

__all__ = ["PickOne"]

_REST = "restarray"


class PickOne(App):
    """Splits an array into its first element and the rest."""

    component = Component(
        name="PickOne",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.PickOne",
        description="Gives the first element of a list or array to its outputs, and the rest to the output whose port "
        "or data drop is called 'rest_array'. With nothing left the element is None and the rest is empty.",
        ports=(
            Port(name="rest_array", usage="InputOutput", type="Object.array", description="The array; the rest of it."),
            Port(name="element", usage="OutputPort", type="Object.element", description="The first element."),
        ),
    )

    def run(self, context: Context) -> None:
        """Pick."""
        first, rest = _split(value_of(context, _array(context)))
        give(context, [output for output in context.outputs if not _is_rest(output)], first)
        give(context, [output for output in context.outputs if _is_rest(output)], rest)


def _array(context: Context) -> InputData:
    """Return the input with the array: that at ``rest_array``, else the first that is not an event."""
    inputs = usable(context)
    named = [data for data in inputs if fold(data.port) == _REST]
    others = [data for data in inputs if not _is_event(context, data)]
    found = named or others
    if not found:
        raise AppError("no input has an array to pick from", hint="connect a list or array to an input port")
    if len(found) > 1:
        context.log(f"{len(found)} arrays are connected; picking from {found[0].name or found[0].oid}", "WARNING")
    return found[0]


def _is_event(context: Context, data: InputData) -> bool:
    argument = context.arguments.get(data.port)
    return argument is not None and argument.type == "Event"


def _is_rest(output: OutputData) -> bool:
    return _REST in (fold(output.port), fold(output.name))


def _split(data: Any) -> tuple[Any, Any]:
    if data is None:
        return None, []
    if isinstance(data, str | bytes) or not hasattr(data, "__getitem__") or not getattr(data, "shape", (1,)):
        return data, []
    return (data[0] if len(data) else None), data[1:]
