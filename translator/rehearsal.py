"""A graph to try out: placeholders in the place of its applications and data, so that only its wiring is run."""

from collections.abc import Iterable

from msgspec.structs import replace

from dropflow.graph.templates import Kind, Template
from translator.problems import Problem, problem
from translator.unroll.node_template import MEMORY, SLEEP

__all__ = ["REHEARSED", "rehearsed"]

REHEARSED: Problem = problem(
    "LG095",
    "this is a rehearsal: no application of the graph is run, and no data are read or written",
    hint="translate the graph without 'test' to run it",
)


def rehearsed(templates: Iterable[Template]) -> tuple[Template, ...]:
    """`templates` with a `SleepApp` that does not sleep for each application, and memory for all data.

    Ports, weights, thresholds and the shape of the graph stay; parameters go. What dropflow has no component for is
    replaced too, so that a graph of container applications can be rehearsed.
    """
    return tuple(
        replace(
            template,
            component=SLEEP if template.kind is Kind.APP else MEMORY,
            category="DALiuGEApp" if template.kind is Kind.APP else "Memory",
            arguments=tuple(argument for argument in template.arguments if argument.is_port),
        )
        for template in templates
    )
