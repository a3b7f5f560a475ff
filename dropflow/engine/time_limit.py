"""How long one attempt of an application may take: the field ``timeout`` that every application has."""

from dropflow.engine.component import Component, Parameter
from dropflow.engine.parameters import read
from dropflow.errors import AttemptTimeoutError
from dropflow.graph.templates import Kind, Template

__all__ = ["TIMEOUT", "time_limit", "timed_out"]

TIMEOUT = Parameter(
    name="timeout",
    type="Float",
    default=0.0,
    minimum=0.0,
    maximum=1e9,
    parameter_type="ComponentParameter",
    description="Seconds that one attempt may take; then it is stopped and has failed. 0 for no limit. An application "
    "argument of this name is the same, unless the application uses it itself: a Python function, a class of users, "
    "a command that mentions {timeout} or has its arguments added.",
)

_ANY_APP = Component(
    name="application", kind=Kind.APP, category="", dropclass="", description="", parameters=(TIMEOUT,)
)


def time_limit(template: Template) -> float:
    """Return the seconds that an attempt of `template` may take; 0 for no limit.

    An application argument of that name, and a port, belong to the application itself;
    `dropflow.apps.component_findings.with_time_limit` makes it a field of the node where the application does not use
    it.

    Raises
    ------
    BadParameterError
        The value of the field is not a number from 0 to 1e9.
    """
    field = template.argument(TIMEOUT.name)
    if template.kind is Kind.DATA or field is None or field.is_port or field.parameter_type == "ApplicationArgument":
        return 0.0
    return float(read(_ANY_APP, template)[TIMEOUT.name])


def timed_out(seconds: float) -> AttemptTimeoutError:
    """Return the error of an attempt that took longer than its limit."""
    return AttemptTimeoutError(
        f"the attempt took longer than its limit of {seconds:g} s and was stopped",
        hint="raise the field 'timeout' of this node, or set it to 0 for no limit",
    )
