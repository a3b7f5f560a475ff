"""Findings about the components of a graph: what `dropflow run` would refuse here, with its codes and texts.

`dropflow.apps.component_findings.findings` makes them. Nothing of the graph is run or imported.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dropflow.apps.component_findings import finding, findings
from dropflow.errors import BadParameterError
from dropflow.graph.templates import Link, Template
from dropflow.problems import Problem, Severity
from translator.logical import LogicalGraph
from translator.problem_codes import VALUE_CODES
from translator.stage_options import ComponentOptions

__all__ = ["ComponentFindings", "check_components"]


@dataclass(frozen=True)
class ComponentFindings:
    """The problems of the components of a graph.

    Attributes
    ----------
    problems : tuple of Problem
        One for each node that cannot run.
    fields : frozenset
        (key of the template, name of the field) of every field in the problems.
    """

    problems: tuple[Problem, ...] = ()
    fields: frozenset[tuple[str, str]] = frozenset()

    def once(self, problems: Iterable[Problem], graph: LogicalGraph) -> Iterator[Problem]:
        """Yield `problems` without those about values that are also in this check, then the problems of this check."""
        refused = {
            field.pointer for node in graph.nodes for field in node.fields if (node.key, field.name) in self.fields
        }
        yield from (found for found in problems if not (found.code in VALUE_CODES and found.where in refused))
        yield from self.problems


def check_components(
    templates: Iterable[Template], links: Sequence[Link], options: ComponentOptions | None
) -> ComponentFindings:
    """Check the components of a graph; without options nothing is checked.

    Parameters
    ----------
    templates : iterable of Template
        The nodes of the graph.
    links : sequence of Link
        The links between them, with rows of the nodes.
    options : ComponentOptions or None
        How to report what cannot run on this host.
    """
    if options is None:
        return ComponentFindings()
    problems: list[Problem] = []
    fields: set[tuple[str, str]] = set()
    severity = Severity.ERROR if options.here else Severity.WARNING
    for template, error in findings(templates, links):
        problems.append(finding(template, error, severity))
        if isinstance(error, BadParameterError):
            fields.update((template.key, name) for name in error.fields)
    return ComponentFindings(tuple(problems), frozenset(fields))
