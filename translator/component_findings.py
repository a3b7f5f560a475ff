"""Findings about the components of a graph: what `dropflow run` would refuse here, with its codes and texts.

`dropflow.apps.needs.findings` makes them. Nothing of the graph is run or imported.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dropflow.apps.needs import finding, findings
from dropflow.errors import AppError, BadParameterError
from dropflow.failure import Problem, Severity
from dropflow.graph.templates import Kind, Link, Template, memory_fault, unreadable_memory
from translator.logical import LogicalGraph
from translator.options import ComponentOptions
from translator.problem_codes import VALUE_CODES


@dataclass(frozen=True)
class ComponentFindings:
    """The problems of the components of a graph.

    Attributes
    ----------
    problems : tuple of Problem
        One for each node that cannot run, or whose memory is not a size.
    fields : tuple of frozenset
        (key of the template, name of the field) of every field in each of the problems.
    """

    problems: tuple[Problem, ...] = ()
    fields: tuple[frozenset[tuple[str, str]], ...] = ()

    def once(self, problems: Sequence[Problem], graph: LogicalGraph) -> Iterator[Problem]:
        """Yield `problems`, then those of this check; the value of a field is in one of them.

        An error of another stage has priority, such as that about the copies of a construct, which its application
        has as a parameter, too. A finding that a value does not fit the type of its field has none.
        """
        named = frozenset[tuple[str, str]]().union(*self.fields)
        places: dict[tuple[str, str], set[str]] = {}
        for node in graph.nodes:
            for field in node.fields:
                if (node.key, field.name) in named:
                    places.setdefault((node.key, field.name), set()).add(field.pointer)
        known = {
            problem.where
            for problem in problems
            if problem.severity is Severity.ERROR and problem.code not in VALUE_CODES and problem.where
        }
        own: list[Problem] = []
        refused: set[str] = set()
        for problem, fields in zip(self.problems, self.fields, strict=True):
            if not fields or not all(known & places.get(field, set()) for field in fields):
                own.append(problem)
            refused.update(*(places.get(field, ()) for field in fields))
        refused |= known
        yield from (problem for problem in problems if not (problem.code in VALUE_CODES and problem.where in refused))
        if not any(where.startswith(("/linkDataArray", "/edges")) for where in known):
            yield from own
        else:  # an edge is missing: that an argument has no value may follow from that
            yield from (problem for problem in own if problem.code != AppError.code)


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
    fields: list[frozenset[tuple[str, str]]] = []
    severity = Severity.ERROR if options.here else Severity.WARNING
    nodes = tuple(templates)
    for template, error in findings(nodes, links):
        problems.append(finding(template, error, severity))
        named = error.fields if isinstance(error, BadParameterError) else ()
        fields.append(frozenset((template.key, name) for name in named))
    for template in nodes:
        if template.kind is Kind.APP and (text := unreadable_memory(template)):
            problems.append(finding(template, BadParameterError(memory_fault(text)), Severity.WARNING))
            fields.append(frozenset())
    return ComponentFindings(tuple(problems), tuple(fields))
