"""Applications that only take time, to test a graph without its real work."""

import math

from dropflow.apps.api import App, Context
from dropflow.apps.builtin.copy import BUFSIZE, copy_all
from dropflow.engine.component import Component, Parameter, Port
from dropflow.errors import UsageError
from dropflow.graph.templates import Kind

__all__ = ["SLEEP_TIME", "SleepAndCopyApp", "SleepApp"]

SLEEP_TIME = Parameter(
    name="sleep_time",
    type="Float",
    default=0.0,
    minimum=0.0,
    aliases=("sleepTime",),
    description="Seconds to sleep. Data connected to an input port of this name takes its place.",
)


class SleepApp(App):
    """Sleeps; writes nothing. It stands for an application that works so long, and keeps a processor as that would."""

    component = Component(
        name="SleepApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.SleepApp",
        description="Sleeps for a while. Its outputs complete empty.",
        parameters=(SLEEP_TIME,),
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
        parameters=(SLEEP_TIME, BUFSIZE),
        ports=(
            Port(name="input", usage="InputPort", description="What is copied."),
            Port(name="output", usage="OutputPort", description="All inputs, one after the other."),
        ),
    )

    def run(self, context: Context) -> None:
        """Sleep, then copy."""
        super().run(context)
        inputs = [data for data in context.inputs if data.port != "sleep_time"] or list(context.inputs)
        copy_all(context, [data for data in inputs if data.ok], context.outputs, self.parameters["bufsize"])
