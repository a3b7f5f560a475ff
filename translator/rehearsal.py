"""Test runs of a graph: placeholders replace its applications and data, so that only its structure is run."""

from collections.abc import Iterable

from msgspec.structs import replace

from dropflow.graph.templates import Kind, Template
from dropflow.problems import Problem
from translator.problem_codes import problem
from translator.unroll.node_template import MEMORY, SLEEP

__all__ = ["REHEARSED", "rehearsed"]

REHEARSED: Problem = problem(
    "LG095",
    "this is a test run: no application of the graph is run, and no data are read or written",
    hint="translate the graph without 'test' to run it",
)


def rehearsed(templates: Iterable[Template]) -> tuple[Template, ...]:
    """Return templates with a `SleepApp` of zero seconds for each application, and memory for all data.

    Ports, weights, thresholds and the shape of the graph are kept; parameters are removed. Classes that dropflow does
    not have are replaced, too, so that a graph of container applications can be tested.
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
