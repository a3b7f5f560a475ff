"""The codes of all findings about a graph, and their meanings.

The site's page of problem codes is made from the table `CODES` and the advice in `docs/reference/problems.md`.
"""

from dropflow.failure import Problem, Severity

_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO

CODES: dict[str, tuple[Severity, str]] = {
    "LG001": (_E, "not JSON, or not a graph at all"),
    "LG002": (_I, "an older family of graphs was recognised and migrated"),
    "LG003": (_E, "an end of an edge is not a node"),
    "LG004": (_E, "the parent of a node is not a construct of the graph"),
    "LG005": (_E, "constructs contain each other in a cycle"),
    "LG006": (_E, "two nodes have the same id"),
    "LG007": (_E, "the structure of the document is wrong"),
    "LG008": (_W, "the graph has no nodes"),
    "LG010": (_E, "an edge names a port that its node does not have"),
    "LG011": (_W, "an edge uses a port against its direction"),
    "LG012": (_W, "the types of the ports at the ends of an edge differ"),
    "LG020": (_E, "a multiplicity is missing or not a non-negative integer"),
    "LG021": (_W, "a multiplicity is zero: the content has no drops"),
    "LG022": (_W, "the width of a gather does not divide the number of its inputs"),
    "LG030": (_E, "the category of a node is unknown"),
    "LG031": (_W, "an old name of a category was replaced"),
    "LG032": (_E, "the construct is known but cannot be translated"),
    "LG040": (_E, "an edge joins two nodes of the same kind and adapters are switched off"),
    "LG041": (_I, "an adapter was inserted into an edge between nodes of the same kind"),
    "LG042": (_W, "an edge appears more than once"),
    "LG050": (_E, "the graph has a cycle"),
    "LG060": (_E, "a loop has neither start and end components nor a closes-loop edge"),
    "LG061": (_W, "an edge from the end to the start of a loop is not marked as closing it"),
    "LG062": (_W, "a loop-aware edge enters and leaves no loop"),
    "LG063": (_W, "an edge enters a loop at a port that also gets data from the previous iteration"),
    "LG064": (_W, "a gather takes all iterations of a loop although its edge is loop-aware"),
    "LG070": (_E, "the levels of the nodes at the ends of an edge cannot be paired"),
    "LG071": (_W, "an edge expands to very many pairs"),
    "LG072": (_W, "a gather has no input"),
    "LG073": (_W, "an edge from a gather back to its scatter has no effect"),
    "LG080": (_E, "a key of a group-by names no level that only its input has"),
    "LG081": (_E, "a group-by has no scatter around its input"),
    "LG082": (_E, "a group-by does not have exactly one input"),
    "LG083": (_E, "a key of a group-by names several levels"),
    "LG084": (_W, "a group-by inside another group-by takes data from outside it"),
    "LG085": (_W, "several drops write one file"),
    "LG086": (_E, "an MKN has several outputs, but writes no data of its own beside it"),
    "LG087": (_E, "a scatter is to be zipped with a scatter that does not exist"),
    "LG088": (_E, "the application of a service is not a command"),
    "LG090": (_E, "a placeholder in a value is not resolved"),
    "LG091": (_E, "the value of a parameter cannot be converted to its type"),
    "LG092": (_W, "a given parameter is not used"),
    "LG093": (_W, "the value of a parameter was out of its range and has been replaced"),
    "LG094": (
        _W,
        "a number is written as text, or a fraction is in a field of type Integer; the value is used",
    ),
    "LG095": (_I, "placeholders replace the applications and data of the graph"),
    "LG096": (_E, "an estimate of time or volume cannot be computed"),
    "LG100": (_E, "a configuration sets a node or a field that the graph does not have"),
    "LG110": (_W, "a parameter has the name of a structural key"),
    "LG111": (_W, "fields of a node have one name, and the value of one is not used"),
    "LG120": (_E, "the graph would become larger than allowed"),
    "PG001": (_E, "the list of drops is not a physical graph"),
    "PG002": (_E, "a drop refers to a drop that does not exist"),
    "PG003": (_E, "two drops have the same id"),
    "PT001": (_E, "a weight is negative or not finite"),
    "PT002": (_E, "the partitioner or its parameters cannot be used"),
    "PT003": (_W, "there are fewer drops, or processors of an island, than parts"),
    "PT004": (_W, "there are fewer parts than the copies of an ExclusiveForceNode need"),
    "PT011": (_E, "no plan that was found keeps the deadline"),
    "PT012": (_W, "an application asks for more processors or memory than any node has"),
    "PT013": (_E, "an application asks for more GPUs than any node of the plan has"),
    "PT010": (_E, "the description of the machines is wrong"),
}
"""Every code with its usual severity and meaning."""

# Those that other modules look for.
ZERO_MULTIPLICITY = "LG021"
TOO_LARGE = "LG120"
BAD_PARTITION = "PT002"

VALUE_CODES = frozenset({"LG091", "LG094"})
"""Codes of findings about the value of one field, which a check of the component reports as well."""

REPEATABLE = frozenset({"LG010", "LG032", "LG041", "LG080", "LG083", "LG094", "LG120"})
"""Codes that may be reported several times for one place of a file, with different texts."""


def problem(code: str, text: str, *, where: str = "", hint: str = "", severity: Severity | None = None) -> Problem:
    """Return a finding, with the usual severity of its code."""
    return Problem(code=code, severity=severity or CODES[code][0], where=where, text=text, hint=hint)
