"""The kind of a node follows from its category."""

import pytest

from tests.translator.documents import codes, document, errors, field, link, node, read


def _kinds(content: object) -> list[str]:
    """Return the kinds of the nodes of a document."""
    graph = read(content).graph
    assert graph is not None
    return [found.kind.value for found in graph.nodes]


@pytest.mark.parametrize("category", ["Plasma", "PlasmaFlight", "RDBMS", "S3", "null", "json"])
def test_services_and_stores_hold_data(category: str) -> None:
    """Categories of data give data drops, independent of the type of the category."""
    assert _kinds(document([node("a", category, categoryType="Service")])) == ["data"]


def test_the_category_decides_and_not_its_type() -> None:
    """A wrong categoryType has no effect."""
    assert _kinds(document([node("a", "Memory", categoryType="Application")])) == ["data"]


def test_an_unknown_category_is_an_error_with_a_suggestion() -> None:
    """A misspelled category gives LG030 with its place and a similar name."""
    problems = read(document([node("a", "Scater")])).problems

    assert errors(problems) == ["LG030"]
    assert problems[0].where == "/nodeDataArray/0/category"
    assert "did you mean 'Scatter'?" in problems[0].hint


def test_all_unknown_categories_are_reported_together() -> None:
    """Each node of unknown category is named."""
    assert errors(read(document([node("a", "Foo"), node("b", "Bar"), node("c", "Memory")])).problems) == ["LG030"] * 2


@pytest.mark.parametrize("category", ["Unknown", "None", ""])
@pytest.mark.parametrize(
    ("more", "fields", "kind"),
    [
        ({"categoryType": "Data"}, [], "data"),
        ({"categoryType": "Application"}, [], "app"),
        ({}, [field("dropclass", "dlg.data.drops.memory.InMemoryDROP")], "data"),
        ({}, [field("appclass", "dlg.apps.simple.CopyApp")], "app"),
        ({}, [], "app"),
    ],
    ids=["type data", "type app", "class data", "class app", "neighbours"],
)
def test_an_undecided_category_is_guessed_with_a_warning(
    category: str, more: dict[str, str], fields: list[dict[str, object]], kind: str
) -> None:
    """Type, class and neighbours determine the kind of a node of category Unknown, with a finding."""
    reading = read(document([node("a", category, *fields, **more), node("b", "Memory")], [link("b", "", "a", "")]))

    assert reading.graph is not None
    assert reading.graph.by_id["a"].kind.value == kind
    assert codes(reading.problems) == ["LG030"]
    assert errors(reading.problems) == []


def test_renamed_categories_are_reported_once_each() -> None:
    """One warning for all nodes of an old category, however many there are."""
    problems = read(document([node(name, "PythonApp") for name in "abc"])).problems

    assert codes(problems) == ["LG031"]
    assert "3 nodes" in problems[0].text
