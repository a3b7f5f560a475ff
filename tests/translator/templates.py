"""A template: a logical graph with parameters."""

from typing import Any

from tests.translator.documents import document, field, link, node, port, scatter


def template(copies: str = "{n} * 2 + 1", **limits: Any) -> dict[str, Any]:
    """Return Memory -> scatter with an expression of copies -> Memory, with the parameters n and who."""
    limits = limits or {"minimum": 1, "maximum": 64}
    parameters = node(
        "V",
        "GlobalVariables",
        field("n", None, type="Integer", description="Number of parts", **limits),
        field("who", "world"),
    )
    split = scatter()
    split["fields"][0]["value"] = copies
    data = node("D", "Memory", port("d", "io", "InputOutput"), field("pydata", "{who} ~n $n"))
    return document(
        [parameters, split, data, node("P", "Memory", port("p", "io", "InputOutput"), parentId="S")],
        [link("D", "d", "S", "in"), link("S", "out", "P", "p")],
        graphConfigurations={"C": {"id": "C", "name": "big", "nodes": {"V": {"fields": {"F-n": {"value": 8}}}}}},
        activeGraphConfigId=None,
    )
