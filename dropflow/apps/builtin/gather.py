"""Gathering many inputs into one output."""

import itertools
from typing import Any

from dropflow.apps.api import App, Context, InputData
from dropflow.apps.builtin.copy import BUFSIZE, copy_all
from dropflow.apps.port_values import give, usable, value_of, values_of
from dropflow.engine.component import Component, Parameter, Port
from dropflow.engine.parameters import is_empty
from dropflow.graph.templates import Argument, Kind, Template

__all__ = ["ArrayGatherApp", "DictGatherApp", "GenericGatherApp"]

WIDTH = Parameter(
    name="num_of_inputs",
    type="Integer",
    default=1,
    minimum=0,
    aliases=("Number of inputs",),
    description="Number of inputs in the palette; at run time all connected inputs are used.",
)


class GenericGatherApp(App):
    """Joins the bytes of its inputs."""

    component = Component(
        name="GenericGatherApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.GenericGatherApp",
        description="Joins its inputs, in order, byte for byte; directories are merged into directories.",
        parameters=(WIDTH, BUFSIZE),
        ports=(
            Port(name="input", usage="InputPort", encoding="raw", description="What is joined."),
            Port(name="output", usage="OutputPort", encoding="raw", description="All inputs, one after the other."),
        ),
        construct="Gather",
    )

    def run(self, context: Context) -> None:
        """Join."""
        copy_all(context, usable(context), context.outputs, self.parameters["bufsize"])


class ArrayGatherApp(App):
    """Collects the values of its inputs in a list."""

    component = Component(
        name="ArrayGatherApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.ArrayGatherApp",
        description="Collects the values of its inputs, in order, into one list; content that is not a pickle "
        "becomes text or bytes.",
        ports=(
            Port(name="value", usage="InputPort", encoding="dill", description="What is collected."),
            Port(name="list", usage="OutputPort", type="Object.list", encoding="dill", description="The list."),
        ),
    )

    def run(self, context: Context) -> None:
        """Collect."""
        found = [values_of(context, data) for data in usable(context)]
        give(context, context.outputs, list(itertools.chain.from_iterable(found)))


class DictGatherApp(App):
    """Collects the values of its inputs by name."""

    component = Component(
        name="DictGatherApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.DictGatherApp",
        description="Collects the values of its inputs into one dictionary, under the names of the data drops (with "
        "-0, -1... where several have one name), beside 'value_dict' and the node's other arguments.",
        parameters=(Parameter(name="value_dict", type="Json", default={}, description="Entries to begin with."),),
        ports=(
            Port(name="value", usage="InputPort", description="What is collected."),
            Port(name="dict", usage="OutputPort", type="Object.dict", description="The dictionary."),
        ),
    )

    @classmethod
    def uses(cls, argument: Argument, template: Template) -> bool:  # noqa: ARG003 - as in App
        """Return True: all arguments become entries of the dictionary."""
        return True

    def run(self, context: Context) -> None:
        """Collect."""
        gathered: dict[str, Any] = dict(self.parameters["value_dict"])
        for argument in self.template.arguments:
            own = argument.name == "value_dict" or argument.parameter_type != "ApplicationArgument"
            if not (own or argument.is_port or is_empty(argument.value, argument.type)):
                gathered[argument.name] = argument.value
        inputs = usable(context)
        for name, data in zip(_names(inputs), inputs, strict=True):
            gathered[name] = value_of(context, data)
        give(context, context.outputs, gathered)


def _names(inputs: list[InputData]) -> list[str]:
    names = [data.name or data.port or data.oid for data in inputs]
    seen: dict[str, int] = {}
    for place, name in enumerate(names):
        if names.count(name) > 1 or name in seen:
            names[place] = f"{name}-{seen.setdefault(name, 0)}"
            seen[name] += 1
    return names
