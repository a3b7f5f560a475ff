"""Components and their parameters."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import BadParameterError
from dropflow.graph.components import Component, Parameter, Unusable, convert, expand, find, fold, is_empty, read
from dropflow.graph.templates import Argument, Kind, Template

COMPONENT = Component(
    name="Mixer",
    kind=Kind.APP,
    category="DALiuGEApp",
    dropclass="x.Mixer",
    description="",
    parameters=(
        Parameter(name="size", type="Integer", default=7, minimum=1, maximum=9, aliases=("how many",)),
        Parameter(name="mode", type="Select", default="fast", options=("fast", "Slow")),
        Parameter(name="axes", type="Json", default=None),
    ),
)


def node(*arguments: Argument) -> Template:
    """Return a node called mixer with these fields."""
    return Template(key="k", name="mixer", kind=Kind.APP, arguments=arguments)


@pytest.mark.parametrize(
    ("value", "type_", "wanted"),
    [
        ("3", "Integer", 3),
        ("3.0", "integer", 3),
        (3.0, "int", 3),
        (" 12 ", "Integer", 12),
        ("1e3", "Integer", 1000),
        ("2", "Float", 2.0),
        ("1e-3", "float", 0.001),
        (5, "Float", 5.0),
        ("TRUE", "Boolean", True),
        ("False", "Boolean", False),
        (0, "Boolean", False),
        (1.0, "Boolean", True),
        ("1", "bool", True),
        ('{"a": [1]}', "Json", {"a": [1]}),
        ("(1, 2)", "Complex", (1, 2)),
        ("None", "Json", None),
        ([1, 2], "Json", [1, 2]),
        ("text", "String", "text"),
        (5, "String", "5"),
        (True, "String", "true"),
        ("anything", "Object.array", "anything"),
        (3, "Unknown", 3),
    ],
)
def test_values_are_converted_to_their_type(value: object, type_: str, wanted: object) -> None:
    """Every spelling of a value that graphs use is converted."""
    got = convert(value, type_)

    assert got == wanted
    assert type(got) is type(wanted)


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        ("3.5", "Integer", "an Integer"),
        ("three", "Integer", "an Integer"),
        (True, "Integer", "an Integer"),
        ("inf", "Integer", "an Integer"),
        ("x", "Float", "a Float"),
        (None, "Float", "a Float"),
        ("yes", "Boolean", "true, false, 1 or 0"),
        (2, "Boolean", "true, false, 1 or 0"),
        ("[int(0)]", "Json", "not evaluated"),
        ("__import__('os')", "Json", "not evaluated"),
        ("[" * 100_000, "Json", "not evaluated"),
        ("[" * 100_000 + "]" * 100_000, "List", "not evaluated"),
    ],
)
def test_anything_else_is_refused(value: object, type_: str, expected: str) -> None:
    """A value that does not fit its type raises an error that says what was expected; no code is run."""
    with pytest.raises(Unusable, match=expected):
        convert(value, type_)


def test_select_is_matched_without_case() -> None:
    """``slow`` is converted to the option ``Slow``; any other text raises an error that lists the options."""
    assert convert("slow", "Select", options=("Fast", "Slow")) == "Slow"
    with pytest.raises(Unusable, match="one of Fast, Slow"):
        convert("medium", "Select", options=("Fast", "Slow"))


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda some: st.lists(some, max_size=3)))
def test_json_texts_mean_what_json_says(value: object) -> None:
    """Any JSON value is read from its text."""
    assert convert(json.dumps(value), "Json") == value


@given(st.integers(-(10**15), 10**15))
def test_integers_survive_every_spelling(number: int) -> None:
    """An integer is the same number as JSON, as text and as a float."""
    assert convert(number, "Integer") == convert(str(number), "Integer") == convert(float(number), "Integer") == number


def _number(text: str) -> float:
    """Return the number that Python reads: digits exactly, every other spelling as a float."""
    try:
        return int(text)
    except ValueError:
        return float(text)


@given(st.text())
def test_conversion_returns_or_raises(text: str) -> None:
    """For any text, the parser returns the number that Python reads, or raises `Unusable`."""
    for type_ in ("Integer", "Float", "Boolean", "Json"):
        with contextlib.suppress(Unusable):
            got = convert(text, type_, environment={})
            if type_ in ("Integer", "Float"):
                wanted = _number(text.strip()) if type_ == "Integer" else float(text.strip())
                assert got == wanted or (got != got and wanted != wanted)  # noqa: PLR0124 - NaN
            assert type_ != "Boolean" or got is True or got is False


def test_environment_references_are_replaced_whole() -> None:
    """``$DLG_X`` alone is replaced by the variable's value; within other text, or without the prefix, it is text."""
    environment = {"DLG_SIZE": "4", "HOME": "/h"}

    assert convert("$DLG_SIZE", "Integer", environment=environment) == 4
    assert expand("$DLG_SIZE/x", environment) == "$DLG_SIZE/x"
    assert expand("$HOME", environment) == "$HOME"
    assert expand("$DLG_ROOT", {}).endswith("/dlg")


def test_an_unset_variable_is_named() -> None:
    """A reference to a variable that is not set is an error, not the text of the reference."""
    with pytest.raises(Unusable, match="DLG_NOWHERE is not set"):
        expand("$DLG_NOWHERE", {})


@pytest.mark.parametrize("blank", [None, "", "  ", "None"])
def test_blank_values_mean_the_default(blank: object) -> None:
    """None, blank text and the text ``None`` leave a number at its default."""
    assert read(COMPONENT, node(Argument(name="size", value=blank)))["size"] == 7


def test_the_text_none_is_a_string() -> None:
    """A String may be the word None."""
    assert not is_empty("None", "String")
    assert is_empty("None", "Object")


@pytest.mark.parametrize("name", ["size", "Size", "SIZE", "how many", "HowMany", "How_Many"])
def test_names_match_in_every_spelling(name: str) -> None:
    """Names are found through aliases, in any case and with any separators."""
    assert read(COMPONENT, node(Argument(name=name, value="3")))["size"] == 3


def test_the_exact_name_wins() -> None:
    """Of two fields that match, the one with exactly this name is used if it has a value."""
    fields = (Argument(name="Size", value=2), Argument(name="size", value=3), Argument(name="SIZE", value=4))

    assert find(fields, "size") is fields[1]
    assert find((fields[0], Argument(name="size", value="")), "size") is fields[0]
    assert fold("Execution time") == fold("execution_time") == fold("executionTime")


def test_all_bad_parameters_are_reported_at_once() -> None:
    """One error lists every parameter that cannot be used: node, name, value and what was expected."""
    fields = (
        Argument(name="size", value="12"),
        Argument(name="mode", value="odd"),
        Argument(name="axes", value="[1"),
    )

    with pytest.raises(BadParameterError, match="parameter 'size' is '12'") as caught:
        read(COMPONENT, node(*fields))

    assert caught.value.where == "mixer"
    assert "'size' is '12', expected an Integer of at least 1 and at most 9" in caught.value.text
    assert "'mode' is 'odd', expected one of fast, Slow" in caught.value.text
    assert "'axes' is '[1', expected JSON" in caught.value.text


def test_the_value_of_a_port_is_only_a_stand_in() -> None:
    """A port whose value cannot be used counts as blank: it only stands for data."""
    port = Argument(name="size", value="Unknown", usage="InputPort")

    assert read(COMPONENT, node(port))["size"] == 7


def test_output_ports_are_no_parameters() -> None:
    """A port that only writes gives no value to a parameter of its name."""
    assert read(COMPONENT, node(Argument(name="size", value=3, usage="OutputPort")))["size"] == 7


def test_the_result_is_complete_and_read_only() -> None:
    """The result has a value for each parameter, and is read-only."""
    values = read(COMPONENT, node())

    assert dict(values) == {"size": 7, "mode": "fast", "axes": None}
    with pytest.raises(TypeError, match="mappingproxy"):
        values["size"] = 1  # type: ignore[index]
