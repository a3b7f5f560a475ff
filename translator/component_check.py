"""Findings about the components of a graph: those that keep `dropflow run` from running it, with its codes and texts.

`dropflow.apps.graph_check.findings` makes them for all who ask; nothing of the graph is run or imported for it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dropflow.apps.graph_check import finding, findings
from dropflow.errors import BadParameterError
from dropflow.graph.templates import Link, Template
from translator.logical import LogicalGraph
from translator.options import ComponentOptions
from translator.problems import Problem, Severity

__all__ = ["ComponentFindings", "check_components"]


_OF_VALUES = ("LG091", "LG094")


@dataclass(frozen=True)
class ComponentFindings:
    """What is wrong with the components of a graph.

    Attributes
    ----------
    problems : tuple of Problem
        One for each node that cannot run.
    fields : frozenset
        (key of the template, name of the field) of every field that they are about.
    """

    problems: tuple[Problem, ...] = ()
    fields: frozenset[tuple[str, str]] = frozenset()

    def once(self, problems: Iterable[Problem], graph: LogicalGraph) -> Iterator[Problem]:
        """`problems` without those about values that the judgement refuses, then its own."""
        refused = {
            field.pointer for node in graph.nodes for field in node.fields if (node.key, field.name) in self.fields
        }
        yield from (found for found in problems if not (found.code in _OF_VALUES and found.where in refused))
        yield from self.problems


def check_components(
    templates: Iterable[Template], links: Sequence[Link], options: ComponentOptions | None
) -> ComponentFindings:
    """Judge the components of a graph; without options nothing is found.

    Parameters
    ----------
    templates : iterable of Template
        Its nodes.
    links : sequence of Link
        Between them, by row.
    options : ComponentOptions or None
        What to make of things that only this host lacks.
    """
    if options is None:
        return ComponentFindings()
    problems: list[Problem] = []
    fields: set[tuple[str, str]] = set()
    for template, error in findings(templates, links):
        if error.of_host and options.missing_here == "ignored":
            continue
        severity = Severity(options.missing_here) if error.of_host else Severity.ERROR
        problems.append(finding(template, error, severity))
        if isinstance(error, BadParameterError):
            fields.update((template.key, name) for name in error.fields)
    return ComponentFindings(tuple(problems), frozenset(fields))
