"""Values of parameters: priorities, replacement, conversion, and errors."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.translator.documents import codes, document, errors, field, graph_of, node, port, scatter, small
from translator.fill_document import fill_document
from translator.logical import LogicalGraph
from translator.parameters import fill, substitute


def _value(graph: LogicalGraph, node_id: str, name: str) -> Any:
    """The effective value of a field."""
    return graph.by_id[node_id].value(name)


def _globals(*fields: dict[str, Any]) -> dict[str, Any]:
    """A node of global variables."""
    return node("V", "GlobalVariables", *fields)


def _filled(content: dict[str, Any], **options: Any) -> LogicalGraph:
    """The filled graph of a document in which nothing is wrong."""
    graph, problems = fill(graph_of(content), **options)
    assert errors(problems) == []
    return graph


def _configured(nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The small graph with a stored configuration of these nodes."""
    return {**small(), "graphConfigurations": {"C": {"id": "C", "name": "five", "nodes": nodes}}, **more}


# --- who wins -------------------------------------------------------------------------------------------------------


def test_a_value_wins_over_its_default() -> None:
    """The default counts only where the value is empty."""
    graph = _filled(document([node("a", "File", field("x", "", defaultValue="d"), field("y", "v", defaultValue="d"))]))

    assert (_value(graph, "a", "x"), _value(graph, "a", "y")) == ("d", "v")


def test_the_active_configuration_wins_over_values() -> None:
    """The configuration that the graph marks as active is applied by default."""
    content = {**small(), "activeGraphConfigId": "C"}

    assert _value(_filled(content), "S", "num_of_copies") == 5


def test_an_inactive_configuration_is_not_applied() -> None:
    """A configuration that is not active has no effect."""
    assert _value(_filled(small()), "S", "num_of_copies") == 3


@pytest.mark.parametrize("name", ["C", "five"])
def test_a_configuration_is_chosen_by_id_or_name(name: str) -> None:
    """The named configuration is applied, by either name."""
    assert _value(_filled(small(), configuration=name), "S", "num_of_copies") == 5


def test_a_setting_wins_over_a_configuration() -> None:
    """Of several settings of one parameter the last one is used."""
    graph = _filled(small(), configuration="C", settings=["name of S.num_of_copies=7"])

    assert _value(graph, "S", "num_of_copies") == 7


def test_a_setting_of_a_construct_applies_to_its_application() -> None:
    """A parameter of a construct and the copy in its application always have the same value."""
    for graph in (_filled(small(), configuration="C"), _filled(small(), settings={"S.num_of_copies": 5})):
        assert _value(graph, "A", "num_of_copies") == 5


def test_a_configuration_can_set_fields_of_embedded_applications() -> None:
    """An embedded application is found by its own id and by that of its construct."""
    for owner in ("A", "S"):
        content = _configured({owner: {"fields": {"F-dropclass": {"value": "my.App"}}}}, activeGraphConfigId="C")

        assert _value(_filled(content), "A", "dropclass") == "my.App"


# --- configurations that do not fit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nodes", [{"gone": {"fields": {"f": {"value": 1}}}}, {"S": {"fields": {"gone": {"value": 1}}}}]
)
def test_an_outdated_stored_configuration_is_a_warning(nodes: dict[str, Any]) -> None:
    """The graph is still translated; LG100 names the ignored setting and its place in the file."""
    graph = graph_of(_configured(nodes, activeGraphConfigId="C"))
    _, problems = fill(graph)

    assert (codes(problems), errors(problems)) == (["LG100"], [])
    assert problems[0].where.startswith("/graphConfigurations/C/nodes/")


def test_a_chosen_configuration_that_does_not_fit_is_an_error() -> None:
    """A setting of the user that cannot be applied is an error."""
    graph = graph_of(_configured({"gone": {"fields": {"f": {"value": 1}}}}))

    assert errors(fill(graph, configuration="C")[1]) == ["LG100"]


def test_an_unknown_configuration_is_an_error_that_lists_the_known() -> None:
    """The hint lists the configurations of the graph."""
    _, problems = fill(graph_of(small()), configuration="six")

    assert errors(problems) == ["LG100"]
    assert "'five'" in problems[0].hint


def test_an_unknown_active_configuration_is_a_warning() -> None:
    """The graph is translated without the configuration."""
    _, problems = fill(graph_of({**small(), "activeGraphConfigId": "gone"}))

    assert (codes(problems), errors(problems)) == (["LG100"], [])


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target", ["S.num_of_copies", "name of S.num_of_copies", "S.F-num_of_copies", "S.Num Of Copies", "A.num_of_copies"]
)
def test_nodes_and_parameters_have_several_names(target: str) -> None:
    """A node is named by id or name, a parameter by name, id of its field, or name in another spelling."""
    assert _value(_filled(small(), settings=[f"{target}=9"]), "S", "num_of_copies") == 9


@pytest.mark.parametrize("target", ["Split.dropclass", "name of S/Split.dropclass", "S.x.y", "dotted.name.x.y"])
def test_names_with_dots_and_applications_are_found(target: str) -> None:
    """Both node and parameter may have dots in their names; an application is found by its own name."""
    content = small()
    content["nodeDataArray"][1]["fields"].append(field("x.y"))
    content["nodeDataArray"].append(node("N", "File", field("x.y"), name="dotted.name"))
    graph = _filled(content, settings={target: "new"})

    assert [field_.value for n in graph.nodes for field_ in n.fields].count("new") in (1, 2)


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("name of T.x=1", "'name of S'"),
        ("S.num_of_copie=1", "'num_of_copies'"),
        ("num_of_copies=1", "the graph has no parameters; to set a field of a node write NODE.PARAM=VALUE"),
        ("S.num_of_copies", "has no '=' with a value: write NODE.PARAM=VALUE"),
        ("=", "NODE.PARAM=VALUE"),
    ],
)
def test_an_invalid_setting_is_an_error_with_a_hint(setting: str, hint: str) -> None:
    """Unknown nodes, unknown parameters and texts without form give LG100 and what to write."""
    _, problems = fill(graph_of(small()), settings=[setting])

    assert errors(problems) == ["LG100"]
    assert hint in f"{problems[0].text}: {problems[0].hint}"


def test_an_ambiguous_name_is_an_error_that_lists_the_ids() -> None:
    """Two nodes of one name can only be set by their ids."""
    nodes = [node("a", "File", field("x"), name="twin"), node("b", "File", field("x"), name="twin")]
    _, problems = fill(graph_of(document(nodes)), settings=["twin.x=1"])

    assert errors(problems) == ["LG100"]
    assert "a, b" in problems[0].hint


@pytest.mark.parametrize(
    ("type_", "given", "value"),
    [
        ("Integer", "4", 4),
        ("Integer", "4.0", 4),
        ("Float", "4", 4.0),
        ("Boolean", "TRUE", True),
        ("Boolean", "0", False),
        ("String", "4", "4"),
        ("Select", "B", "b"),
        ("Object.Array", "[1]", "[1]"),
        ("Integer", "", None),
        ("Integer", "$DLG_SIZE", "$DLG_SIZE"),
        ("String", "a=b", "a=b"),
    ],
)
def test_a_setting_is_converted_to_the_type_of_its_field(type_: str, given: str, value: Any) -> None:
    """A text from the command line is converted to the type of the field."""
    content = document([node("a", "File", field("x", 0, type=type_, options=["a", "b"]))])

    assert _value(_filled(content, settings=[f"a.x={given}"]), "a", "x") == value


@pytest.mark.parametrize(("type_", "given"), [("Integer", "many"), ("Float", "1,5"), ("Boolean", "2"), ("Select", "c")])
def test_a_setting_that_does_not_fit_its_field_is_an_error(type_: str, given: str) -> None:
    """LG091 has the expected type."""
    content = document([node("a", "File", field("x", "", type=type_, options=["a", "b"]))])
    _, problems = fill(graph_of(content), settings=[f"a.x={given}"])

    assert errors(problems) == ["LG091"]
    assert "expected" in problems[0].text


# --- conversion -----------------------------------------------------------------------------------------------------


def test_texts_are_converted_to_their_type() -> None:
    """Values that old files store as text are converted to the declared type."""
    fields = [field("i", "5", type="Integer"), field("f", "2.5", type="Float"), field("b", "True", type="Boolean")]
    graph = _filled(document([node("a", "File", *fields)]))

    assert [field_.value for field_ in graph.by_id["a"].fields] == [5, 2.5, True]


@pytest.mark.parametrize(
    ("given", "number"), [("4", 4), (" 4 ", 4), ("4.0", 4), ("1e3", 1000), ("0.5", 0.5), (0.5, 0.5), (" 2.5e-1", 0.25)]
)
def test_a_field_declared_integer_takes_the_number_that_it_holds(given: object, number: float) -> None:
    """A number as text, or a fraction, is accepted as a number, with one warning."""
    graph, problems = fill(graph_of(document([node("a", "PyFuncApp", field("n", given, type="Integer"))])))

    assert (_value(graph, "a", "n"), codes(problems), errors(problems)) == (number, ["LG094"], [])


def test_a_setting_may_be_a_fraction() -> None:
    """--set on a field declared Integer takes 0.5, and warns."""
    content = document([node("a", "PyFuncApp", field("n", 1, type="Integer"))])
    graph, problems = fill(graph_of(content), settings=["a.n=0.5"])

    assert (_value(graph, "a", "n"), codes(problems), errors(problems)) == (0.5, ["LG094"], [])


def test_many_numbers_as_text_are_one_warning() -> None:
    """Old editors wrote all numbers as text: one finding names the first and counts the others."""
    fields = [field(name, "5", type=type_) for name, type_ in (("x", "Integer"), ("y", "Float"), ("z", "Integer"))]
    _, problems = fill(graph_of(document([node("a", "PyFuncApp", *fields)])))

    assert [problem.text for problem in problems] == [
        "numbers are written as text in x of 'name of a' and 2 more; they are used as numbers"
    ]


@pytest.mark.parametrize("given", ["lots", "nan", "inf", "1,5", True, "0x10"])
def test_infinity_and_nan_are_not_converted_to_integers(given: object) -> None:
    """Infinity and NaN are not converted in a field of type Integer."""
    graph, problems = fill(graph_of(document([node("a", "PyFuncApp", field("n", given, type="Integer"))])))

    assert _value(graph, "a", "n") == given
    assert "LG094" not in codes(problems)


def test_a_stored_value_that_does_not_fit_is_a_warning_and_stays() -> None:
    """DALiuGE ignores types, so the value is kept and the graph is not refused."""
    graph, problems = fill(graph_of(document([node("a", "File", field("i", "lots", type="Integer"))])))

    assert (codes(problems), errors(problems)) == (["LG091"], [])
    assert _value(graph, "a", "i") == "lots"


def test_values_of_ports_are_not_parameters() -> None:
    """The value of a port is not checked, because data replace it."""
    _, problems = fill(graph_of(document([node("a", "File", port("p", "io", "InputPort", type="Integer", value="x"))])))

    assert problems == ()


# --- global variables -----------------------------------------------------------------------------------------------


def test_global_variables_are_inserted_with_their_type() -> None:
    """A value that is nothing but a placeholder becomes the variable; inside a text it becomes text."""
    content = document(
        [
            _globals(field("n", "4", type="Integer"), field("who", "world")),
            node(
                "a",
                "File",
                field("x", "{n}"),
                field("y", "hello {who}, {n} times"),
                field("z", ["{n}", {"k": "{who}"}]),
            ),
        ]
    )
    graph = _filled(content)

    assert [field_.value for field_ in graph.by_id["a"].fields] == [4, "hello world, 4 times", [4, {"k": "world"}]]


@pytest.mark.parametrize(
    "text", ["{port}", "f'{x!r}'", "{'a': 1}", "{}", "{ n }", "${n", "{n:>3}", "n", "x~n", "~/data"]
)
def test_braces_without_a_variable_are_unchanged(text: str) -> None:
    """Commands and code keep their braces and tildes."""
    content = document([_globals(field("n", "4", type="Integer")), node("a", "File", field("x", text))])

    assert _value(_filled(content), "a", "x") == text


@pytest.mark.parametrize("text", ["~n", "~{n}", "{n}"])
def test_tildes_are_replaced_with_the_option_only(text: str) -> None:
    """DALiuGE's old placeholders are replaced only with the option `tilde`."""
    assert substitute(text, {"n": 4}, set(), tilde=True) == 4


def test_variables_may_name_variables() -> None:
    """Variables in values of variables are resolved in any order."""
    content = document(
        [
            _globals(field("path", "{root}/x"), field("root", "/{top}"), field("top", "t")),
            node("a", "File", field("x", "{path}")),
        ]
    )

    assert _value(_filled(content), "a", "x") == "/t/x"


def test_variables_that_refer_to_each_other_are_an_error() -> None:
    """LG090 names those that refer to each other."""
    _, problems = fill(graph_of(document([_globals(field("a", "{b}"), field("b", "{a}"), field("c", "1"))])))

    assert errors(problems) == ["LG090"]
    assert "a, b refer" in problems[0].text


def test_the_user_sets_global_variables() -> None:
    """`global.x` wins over the graph, keeps the graph's type, and may be new."""
    content = document(
        [_globals(field("n", "4", type="Integer")), node("a", "File", field("x", "{n}"), field("y", "{new}"))]
    )
    graph = _filled(content, settings=["global.n=5", "global.new=six"])

    assert [field_.value for field_ in graph.by_id["a"].fields] == [5, "six"]


def test_a_global_variable_that_nothing_uses_is_a_warning() -> None:
    """LG092 points at a misspelled variable."""
    _, problems = fill(graph_of(small()), settings=["global.typo=1"])

    assert (codes(problems), errors(problems)) == (["LG092"], [])


def test_a_multiplicity_that_nothing_resolves_is_an_error() -> None:
    """`{copies}` without such a variable gives LG090, with a hint how to set it."""
    content = small()
    content["nodeDataArray"][1]["fields"][0]["value"] = "{copies}"
    _, problems = fill(graph_of(content))

    assert errors(problems) == ["LG090"]
    assert "--set copies=VALUE" in problems[0].hint
    assert problems[0].where == "/nodeDataArray/1/fields/0"


def test_filling_does_not_change_the_given_graph() -> None:
    """Filling gives a new graph and leaves the old one as it was."""
    graph = graph_of(document([scatter()]))
    before = repr(graph)
    filled, _ = fill(graph, settings=["S.num_of_copies=8"])

    assert repr(graph) == before
    assert filled is not graph


# --- properties -----------------------------------------------------------------------------------------------------

_NAMES = st.sampled_from(["a", "b", "n_1", "x.y"])
_TEXT = st.lists(st.one_of(st.text(alphabet="{}~ab$ ", max_size=5), _NAMES.map("{{{}}}".format)), max_size=6).map(
    "".join
)


@given(text=_TEXT, variables=st.dictionaries(_NAMES, st.text(alphabet="xyz", max_size=3), max_size=4))
def test_replacement_equals_that_of_a_simple_scan(text: str, variables: dict[str, str]) -> None:
    """Each placeholder of a known variable is replaced once, from left to right, and nothing else changes."""
    expected, rest = "", text
    while rest:
        name = next((name for name in variables if rest.startswith(f"{{{name}}}")), None)
        expected += rest[0] if name is None else variables[name]
        rest = rest[1:] if name is None else rest[len(name) + 2 :]

    inserted = substitute(text, variables, set())
    assert inserted == expected or inserted.strip() == expected.strip()


@pytest.mark.parametrize("text", ["{n} * 2", "~n * 2"])
def test_a_size_of_a_construct_with_an_application_is_written_as_a_number(text: str) -> None:
    """The application has a copy of the field, which gets the value of its construct."""
    content = small()
    content["nodeDataArray"][1]["fields"][0]["value"] = text
    content["nodeDataArray"].append(node("V", "GlobalVariables", field("n", 9, type="Integer")))
    filled = fill_document(json.dumps(content).encode(), name="x", settings={"n": 10})

    assert json.loads(filled.document)["nodeDataArray"][1]["fields"][0]["value"] == 20


def test_a_flag_of_an_old_node_is_filled_in_as_a_field() -> None:
    """Old files have `precious` as an attribute of a node: a value for the field in its place is kept in the file."""
    content = document([{**node("a", "Memory"), "precious": True}])
    filled = fill_document(json.dumps(content).encode(), name="x", settings={"a.persist": "false"})

    assert not fill_document(filled.document, name="y").problems
    assert "value" not in json.loads(filled.document)
    assert _value(graph_of(json.loads(filled.document)), "a", "persist") is False


def test_nodes_of_one_id_are_filled() -> None:
    """Checks report nodes of one id; filling keeps both, whatever fields they have."""
    values = field("n", 3, type="Integer")
    content = document([node("a", "File", field("x", "{n}")), node("a", "File"), node("V", "GlobalVariables", values)])
    filled = fill_document(json.dumps(content).encode(), name="x", settings={"n": 5})

    assert json.loads(filled.document)["nodeDataArray"][0]["fields"][0]["value"] == 5


def test_long_chains_of_variables_are_resolved() -> None:
    """Each variable is resolved once, after the one that it names, however many there are."""
    chain = [field(f"x{number}", f"{{x{number + 1}}}") for number in range(2_000)]
    content = document([_globals(*chain, field("x2000", "end")), node("a", "File", field("filepath", "{x0}"))])

    assert _value(_filled(content), "a", "filepath") == "end"


def test_values_that_double_again_and_again_are_refused() -> None:
    """A variable that names another one twice, and so on, has a limit, so that a small file takes little memory."""
    doubling = [field(f"x{number}", f"{{x{number - 1}}}" * 2) for number in range(1, 60)]
    content = document([_globals(field("x0", "ab"), *doubling), node("a", "File", field("filepath", "{x59}"))])

    _, problems = fill(graph_of(content))
    assert set(errors(problems)) == {"LG090"}
    assert "'x19' has more than 1,000,000 characters" in problems[0].text
