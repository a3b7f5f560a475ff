"""Applications for first graphs and for tests: greet, do nothing, sleep, compute."""

import math

from dropflow.apps.app_interface import App, Context
from dropflow.apps.builtin.copy import BUFSIZE, copy_all
from dropflow.apps.encodings import give, usable, value_of
from dropflow.apps.parameters import NOT_DETERMINISTIC
from dropflow.errors import AppError, UsageError
from dropflow.graph.components import Component, Parameter, Port
from dropflow.graph.templates import Kind

SLEEP_TIME = Parameter(
    name="sleep_time",
    type="Float",
    default=0.0,
    minimum=0.0,
    aliases=("sleepTime",),
    description="Seconds to sleep. Data connected to an input port of this name takes its place.",
)


class HelloWorldApp(App):
    """Writes a greeting."""

    component = Component(
        name="HelloWorldApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.HelloWorldApp",
        description="Writes 'Hello <greet>' as text, or 'Hello, <whom>' with the content of its one input.",
        parameters=(Parameter(name="greet", default="World", description="Name to greet when there is no input."),),
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


# An application that only waits for its inputs.


class NullBarrierApp(App):
    """Completes when its inputs have completed."""

    component = Component(
        name="NullBarrierApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.NullBarrierApp",
        aliases=("dlg.apps.app_base.BarrierAppDROP", "dlg.drop.BarrierAppDROP"),
        description="Does nothing; a point where branches of a graph meet. Its outputs complete empty.",
    )

    def run(self, context: Context) -> None:
        """Do nothing."""


# Applications that only take time, to test a graph without its real work.


class SleepApp(App):
    """Sleeps; writes nothing. It stands for an application that works so long, and keeps a processor as that would."""

    component = Component(
        name="SleepApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.SleepApp",
        description="Sleeps for a while. Its outputs complete empty.",
        parameters=(NOT_DETERMINISTIC, SLEEP_TIME),
    )

    def run(self, context: Context) -> None:
        """Sleep until the time is over or the session is cancelled."""
        context.wait(self._seconds(context))

    def _seconds(self, context: Context) -> float:
        """Return the data at the port ``sleep_time`` if there are any, else the parameter.

        Real graphs also use that port with other data, only to order drops: then the time is 0.
        """
        data = context.input("sleep_time")
        if data is None or not data.ok:
            return float(self.parameters["sleep_time"])
        try:
            seconds = float(data.value())
        except (TypeError, ValueError, UsageError):
            context.log("the data at port 'sleep_time' are not a number of seconds: not sleeping", "WARNING")
            return 0.0
        if not math.isfinite(seconds) or seconds < 0:
            context.log(f"{seconds} at port 'sleep_time' is not a valid time: not sleeping", "WARNING")
            return 0.0
        return seconds


class SleepAndCopyApp(SleepApp):
    """Sleeps, then copies its inputs to its outputs."""

    component = Component(
        name="SleepAndCopyApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.SleepAndCopyApp",
        description="Sleeps for a while, then copies all inputs, in order, to every output.",
        parameters=(NOT_DETERMINISTIC, SLEEP_TIME, BUFSIZE),
        ports=(
            Port(name="input", usage="InputPort", description="Data to copy."),
            Port(name="output", usage="OutputPort", description="All inputs, one after the other."),
        ),
    )

    def run(self, context: Context) -> None:
        """Sleep, then copy."""
        super().run(context)
        inputs = [data for data in context.inputs if data.port != "sleep_time"] or list(context.inputs)
        copy_all(context, [data for data in inputs if data.ok], context.outputs, self.parameters["bufsize"])


# An application that uses time and memory, for load tests.


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
