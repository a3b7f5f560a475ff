"""Reading of logical graphs of all families. Never raises for the content of a file."""

import msgspec

from dropflow.graph.codec import is_dfg
from dropflow.graph.physical import PhysicalGraph
from dropflow.problems import Problem
from translator.formats.detect import LOGICAL, Family, classify
from translator.formats.json_document import parse
from translator.formats.logical_builder import assemble
from translator.formats.ojs import read_ojs
from translator.formats.schema import check_structure
from translator.formats.v4 import read_v4
from translator.formats.wfformat import read_wfformat
from translator.logical import LogicalGraph
from translator.problem_codes import problem
from translator.stage_options import ReadOptions

__all__ = ["Reading", "read_logical"]

_FOREIGN = {
    Family.PHYSICAL: ("this is a physical graph (a list of drops)", "run or partition it directly: it is unrolled"),
    Family.DFG: ("this is a physical graph in a .dfg container", "run or partition it directly: it is unrolled"),
    Family.PALETTE: ("this is a palette, and not a graph", "draw a graph with it in EAGLE and give that"),
    Family.CONFIGURATION: ("this is a graph configuration, not a graph", "give the graph that it belongs to"),
    Family.NONE: (
        "this is JSON, but not a graph: it has neither 'nodeDataArray' nor 'nodes' and 'edges'",
        "give a .graph file that EAGLE saved",
    ),
}


class Reading(msgspec.Struct, frozen=True):
    """The result of reading a file.

    Attributes
    ----------
    graph : LogicalGraph or None
        The graph; None if the file has none. If `problems` has errors the graph is incomplete, and only used to find
        more problems.
    problems : tuple of Problem
        All findings.
    family : Family
        Family of the file.
    physical : PhysicalGraph or None
        The graph of a workflow of WfCommons, which is a physical one.
    """

    graph: LogicalGraph | None
    problems: tuple[Problem, ...]
    family: Family = Family.NONE
    physical: PhysicalGraph | None = None


def read_logical(data: bytes, *, name: str, options: ReadOptions | None = None) -> Reading:
    """Read a logical graph.

    Parameters
    ----------
    data : bytes
        The whole file.
    name : str
        Name of the graph, usually the file name without suffix.
    options : ReadOptions, optional
        Limits on size and depth.

    Returns
    -------
    Reading
        Every finding has a JSON pointer into the file. No content of a file makes this function raise.
    """
    options = options or ReadOptions()
    if is_dfg(data):
        return _foreign(Family.DFG)
    document = parse(data, options)
    if document.problems:
        return Reading(None, document.problems)
    family = classify(document.value)
    if family is Family.WFFORMAT:
        graph, findings = read_wfformat(document.value, name)
        return Reading(None, findings, family, graph)
    if family not in LOGICAL:
        return _foreign(family)
    problems: list[Problem] = list(check_structure(document.value, options.max_findings))
    records = (
        read_v4(document.value, problems)
        if "nodeDataArray" not in document.value
        else read_ojs(document.value, family, problems)
    )
    if family not in (Family.OJS_ID, Family.EMPTY):
        steps = "; ".join(records.steps)
        problems.append(problem("LG002", f"a graph of the {family.value} family was migrated: {steps}"))
    if family is Family.EMPTY:
        problems.append(problem("LG008", "the graph has no nodes", hint="draw one in EAGLE"))
    return Reading(assemble(records, name, problems), tuple(problems), family)


def _foreign(family: Family) -> Reading:
    text, hint = _FOREIGN[family]
    return Reading(None, (problem("LG001", text, hint=hint),), family)
