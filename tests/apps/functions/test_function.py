"""Python functions as applications."""

import base64
import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import dill
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dropflow
from dropflow.data.read import read
from dropflow.graph.templates import Argument
from dropflow.testing.attempts import FAILED, SKIPPED, Attempted, Given, Wanted, try_app

CLASS = "dlg.apps.pyfunc.PyFuncApp"
FILE = "dlg.data.drops.file.FileDROP"
PATHS = "from pathlib import Path\n"


def field(name: str, value: Any, type_: str = "String", **more: Any) -> Argument:
    """An application argument."""
    return Argument(name=name, value=value, type=type_, parameter_type="ApplicationArgument", **more)


def port(name: str, usage: str = "InputPort", encoding: str = "", **more: Any) -> Argument:
    """A port."""
    more.setdefault("type", "Object")
    return Argument(name=name, usage=usage, encoding=encoding, parameter_type="ApplicationArgument", **more)


def call(
    directory: Path,
    code: str,
    *fields: Argument,
    inputs: Any = (),
    outputs: Any = ("out",),
    name: str = "f",
    collects: tuple[str, ...] = (),
) -> Attempted:
    """Run the function `name` of `code`."""
    arguments = (Argument(name="func_name", value=name), Argument(name="func_code", value=code), *fields)
    connected = [Given(port, content) for port, content in inputs]
    return try_app(CLASS, directory, inputs=connected, outputs=outputs, fields=arguments, collects=collects)


def test_arguments_come_from_ports_fields_and_defaults(tmp_path: Path) -> None:
    """The order of precedence is: port, field, func_defaults, default of the function."""
    code = "def f(a=1, b=1, c=1, d=1): return a, b, c, d"
    defaults = Argument(name="func_defaults", value='{"b": 2, "c": 2, "d": 2}')

    got = call(tmp_path, code, defaults, field("c", 3, "Integer"), field("d", 3, "Integer"), inputs=[("d", 4)])

    assert got.values == [(1, 2, 3, 4)]


@pytest.mark.parametrize(("value", "number"), [(0.5, 0.5), ("0.5", 0.5), (" 4 ", 4), ("1e3", 1000)])
def test_an_integer_field_accepts_fractions_and_text(tmp_path: Path, value: object, number: float) -> None:
    """A fraction, or a number as text, is passed to the function as a number; so is text at an Integer port."""
    code = "def f(x): return x"

    assert call(tmp_path, code, field("x", value, "Integer")).values == [number]
    assert call(tmp_path, code, port("x", type="Integer"), inputs=[("x", str(value))]).values == [number]


@pytest.mark.parametrize("value", [0, False, 0.0])
def test_falsy_fields_override_defaults(tmp_path: Path, value: object) -> None:
    """0 and False in a field override a default like any other value."""
    type_ = {int: "Integer", bool: "Boolean", float: "Float"}[type(value)]

    assert call(tmp_path, "def f(x=7): return x", field("x", value, type_)).values == [value]


def test_a_blank_field_means_the_default_or_empty_text(tmp_path: Path) -> None:
    """For a blank field the default is used; an argument without default gets the empty text."""
    code = "def f(a, b='kept'): return a, b"

    assert call(tmp_path, code, field("a", ""), field("b", "")).values == [("", "kept")]


def test_a_missing_argument_is_named(tmp_path: Path) -> None:
    """A required argument without a value is an error that names it; it is not None."""
    failure = call(tmp_path, "def f(x, y): return x", field("x", 1, "Integer")).failure

    assert "f() needs a value for 'y'" in failure.text
    assert "connect data" in failure.hint


def test_field_values_are_converted_to_their_type(tmp_path: Path) -> None:
    """Fields are converted to their declared type: JSON and literals are parsed, texts of numbers become numbers."""
    fields = (field("a", "[1, 2]", "Json"), field("b", "(1, None)", "Complex"), field("c", "3", "Integer"))

    assert call(tmp_path, "def f(a, b, c): return a, b, c", *fields).values == [([1, 2], (1, None), 3)]


def test_all_invalid_fields_are_reported_together(tmp_path: Path) -> None:
    """Every field that does not fit its type is reported."""
    failure = call(tmp_path, "def f(a, b): 0", field("a", "x", "Integer"), field("b", "[int(0)]", "Json")).failure

    assert "'a' is 'x', expected an Integer" in failure.text
    assert "'b' is '[int(0)]'" in failure.text


def test_components_are_arguments_too(tmp_path: Path) -> None:
    """Any field is passed to a function with an argument of that name, except those that EAGLE has on every node."""
    fields = (Argument(name="x", value="5", type="Integer"), Argument(name="num_cpus", value=8, type="Integer"))

    assert call(tmp_path, "def f(x, num_cpus=1): return x, num_cpus", *fields).values == [(5, 1)]


def test_varargs_and_kwargs_take_the_remaining_fields(tmp_path: Path) -> None:
    """Positional fields extend *args behind the named ones, the others go to **kwargs."""
    fields = (field("a", 1, "Integer"), field("p", "x", positional=True), field("k", "y"))

    got = call(tmp_path, "def f(a, *args, **kwargs): return a, args, kwargs", *fields)

    assert got.values == [(1, ("x",), {"k": "y"})]


def test_positional_only_arguments(tmp_path: Path) -> None:
    """Positional-only arguments are passed by position."""
    got = call(tmp_path, "def f(a, b=5, /, *, c): return a, b, c", field("c", 3, "Integer"), inputs=[("a", 1)])

    assert got.values == [(1, 5, 3)]


def test_unused_values_are_logged(tmp_path: Path) -> None:
    """A field without an argument is left out, with a warning in the log."""
    got = call(tmp_path, "def f(): return 1", field("wrong", 1, "Integer"))

    assert got.values == [1]
    assert "no argument 'wrong'" in got.log


def test_unnamed_inputs_fill_missing_arguments_in_order(tmp_path: Path) -> None:
    """Unnamed inputs become arguments in order, after those that have a name."""
    assert call(tmp_path, "def f(a, b, c): return a, b, c", inputs=[("", 1), ("b", 2), ("", 3)]).values == [(1, 2, 3)]


def test_event_ports_have_no_value(tmp_path: Path) -> None:
    """An Event input is not an argument, and an Event output stays empty."""
    events = (port("go", type="Event"), port("done", "OutputPort", type="Event"))

    got = call(tmp_path, "def f(x=1): return x", *events, inputs=[("go", 9)], outputs=["done", "out"])

    assert got.contents[0] == b""
    assert got.values == [None, 1]


def test_a_failed_input_counts_as_not_connected(tmp_path: Path) -> None:
    """Within the error threshold, a failed input counts as not connected, so that the default is used."""
    got = call(tmp_path, "def f(x=1): return x", inputs=[("x", FAILED)])

    assert got.values == [1]
    assert "input 'x' failed" in got.log
    assert "'x': all inputs there failed" in call(tmp_path, "def f(x): return x", inputs=[("x", FAILED)]).failure.text


@pytest.mark.parametrize(
    ("contents", "collects", "expected"),
    [
        ([1], (), 1),
        ([1], ("x",), [1]),
        ([1, 2, 3], (), [1, 2, 3]),
        ([3, 2, 1], ("x",), [3, 2, 1]),
        ([1, SKIPPED], (), 1),
        ([1, FAILED], (), [1]),
        ([1, FAILED, 3], ("x",), [1, 3]),
        ([FAILED], ("x",), []),
        ([FAILED, FAILED], (), []),
        ([b"", b""], ("x",), [None, None]),
    ],
)
@pytest.mark.parametrize("name", ["x", "other"])
def test_several_inputs_at_a_port_are_a_list(
    tmp_path: Path, contents: list[Any], collects: tuple[str, ...], expected: Any, name: str
) -> None:
    """A port at which the graph collects, or with more than one input that was not skipped, gives a list, in order.

    Whether it is a list does not depend on how many inputs a scatter of some size makes, or how many of them failed. It
    is the same for the port that the argument is called after, and for one with another name.
    """
    got = call(
        tmp_path, f"def f({name}): return {name}", inputs=[("x", content) for content in contents], collects=collects
    )

    assert got.values == [expected]


def test_inputs_at_a_port_without_an_argument_are_all_used(tmp_path: Path) -> None:
    """They go to ``*args`` one by one, to ``**kwargs`` as a list, and to arguments one by one if there are enough."""
    inputs = [("x", 1), ("x", 2)]

    assert call(tmp_path / "a", "def f(*a): return a", inputs=inputs).values == [(1, 2)]
    assert call(tmp_path / "b", "def f(*a): return a", inputs=inputs, collects=("x",)).values == [(1, 2)]
    assert call(tmp_path / "c", "def f(**k): return k", inputs=inputs).values == [{"x": [1, 2]}]
    assert call(tmp_path / "d", "def f(a, b): return a, b", inputs=inputs).values == [(1, 2)]
    assert call(tmp_path / "e", "def f(a, b=0): return a, b", inputs=inputs).values == [([1, 2], 0)]


def test_the_log_distinguishes_skipped_from_failed_inputs(tmp_path: Path) -> None:
    """The log has the reason why an input has no content."""
    got = call(tmp_path, "def f(x=1): return x", inputs=[("x", SKIPPED)])

    assert got.values == [1]
    assert "input 'x' was skipped" in got.log


def test_empty_data_do_not_override_fields_and_defaults(tmp_path: Path) -> None:
    """A memory drop without content does not override field or default; a required argument gets None."""
    code = "def f(a, b=2, c=3): return a, b, c"
    inputs = [("a", b""), ("b", b""), ("c", b"")]

    assert call(tmp_path, code, field("b", 5, "Integer"), inputs=inputs).values == [(None, 5, 3)]


def test_each_port_has_its_own_encoding(tmp_path: Path) -> None:
    """Inputs are read and outputs written as their ports say."""
    fields = (
        port("a", encoding="utf-8"),
        port("b", encoding="json"),
        port("t", "OutputPort", "utf-8"),
        port("n", "OutputPort", "npy"),
    )
    code = "def f(a, b): return [len(a), b['k']]"

    got = call(tmp_path, code, *fields, inputs=[("a", b"\xc3\xa9"), ("b", b'{"k": 3}')], outputs=["t", "n"])

    assert got.contents[0] == b"[1, 3]"
    assert (got.contents[1] or b"")[:6] == b"\x93NUMPY"


def test_every_output_gets_the_whole_value(tmp_path: Path) -> None:
    """A tuple is not distributed over output ports."""
    assert call(tmp_path, "def f(): return 1, 2", outputs=["a", "b"]).values == [(1, 2), (1, 2)]


def test_a_dictionary_with_the_port_names_is_distributed(tmp_path: Path) -> None:
    """A dictionary with exactly the names of two or more output ports gives each port its entry."""
    assert call(tmp_path, "def f(): return {'a': 1, 'b': 2}", outputs=["a", "b"]).values == [1, 2]
    assert call(tmp_path / "1", "def f(): return {'a': 1}", outputs=["a"]).values == [{"a": 1}]
    assert call(tmp_path / "2", "def f(): return {'a': 1, 'c': 2}", outputs=["a", "b"]).values == [{"a": 1, "c": 2}] * 2


def test_a_path_output_is_written_by_the_function(tmp_path: Path) -> None:
    """An output port with path encoding is an argument; what the function writes there is the content."""
    code = f"{PATHS}def f(out):\n    Path(out).write_text('mine')\n    return 'not written'"

    got = call(tmp_path, code, port("out", "OutputPort", "path"), outputs=[Wanted("out", component=FILE)])

    assert got.contents == [b"mine"]


def test_the_input_at_an_inputoutput_path_port_names_the_file(tmp_path: Path) -> None:
    """For an InputOutput port with path encoding, the input is the name of the file."""
    code = f"{PATHS}def f(filepath): Path(filepath).write_text('mine')"
    ports = (port("filepath", "InputOutput", "path"),)

    got = call(tmp_path, code, *ports, inputs=[("filepath", "hello.txt")], outputs=[Wanted("filepath", component=FILE)])

    assert got.handles[0] is not None
    assert Path(got.handles[0].final or got.handles[0].location).name == "hello.txt"
    assert read(got.handles[0]) == b"mine"


def test_a_returned_path_becomes_the_content(tmp_path: Path) -> None:
    """If a function returns the path of a file for a path output, that file is the content."""
    place = str(tmp_path / "x")
    code = f"{PATHS}def f():\n    Path({place!r}).write_text('mine')\n    return {place!r}"

    got = call(tmp_path, code, port("out", "OutputPort", "path"), outputs=[Wanted("out", component=FILE)])

    assert got.contents == [b"mine"]


def test_inputs_at_path_ports_are_paths(tmp_path: Path) -> None:
    """An input port with path encoding gives a path, also for content in memory."""
    got = call(
        tmp_path, f"{PATHS}def f(x): return Path(x).read_bytes()", port("x", encoding="path"), inputs=[("x", b"\0data")]
    )

    assert got.values == [b"\0data"]


@pytest.mark.parametrize(
    ("name", "inputs", "wanted"),
    [
        ("len", [("obj", [1, 2])], 2),
        ("os.path.basename", [("p", "a/b")], "b"),
        ("numpy.linalg.norm", [("x", np.array([3.0, 4.0]))], 5.0),
        ("collections.OrderedDict.fromkeys", [("iterable", ["k"])], {"k": None}),
        ("decimal.Decimal.__init__", [("value", "2.5")], 2.5),
        ("str.upper", [("self", "x")], "X"),
        ("json.dumps", [("obj", [1])], "[1]"),
        ("xml.etree.ElementTree.iselement", [("element", 1)], False),
        ("dlg.apps.simple_functions.string2json", [("string", "[1]")], [1]),
    ],
)
def test_functions_are_imported_by_name(tmp_path: Path, name: str, inputs: Any, wanted: object) -> None:
    """Builtins, functions of modules and submodules, classes, members, and DALiuGE's simple functions."""
    assert call(tmp_path, "", name=name, inputs=inputs).values == [wanted]


@pytest.mark.parametrize(
    ("name", "code", "text", "hint"),
    [
        ("nowhere_at_all.f", "DF106", "needs the module 'nowhere_at_all', which is not installed", "install"),
        ("os.path.basenam", "DF104", "has no 'basenam'", "did you mean 'basename'"),
        ("lenn", "DF104", "not a builtin function", "did you mean 'len'"),
        ("math.pi", "DF104", "cannot be called", "name a function"),
    ],
)
def test_functions_that_cannot_be_found_are_an_error(
    tmp_path: Path, name: str, code: str, text: str, hint: str
) -> None:
    """The failure names what is missing and has a hint."""
    failure = call(tmp_path, "", name=name).failure

    assert failure.code == code
    assert text in failure.text
    assert hint in failure.hint


def test_source_may_import_and_define_more_than_one_thing(tmp_path: Path) -> None:
    """func_code is a module: its imports, helpers and classes work, and results of its classes travel."""
    code = (
        "import math\nclass P:\n    def __init__(self, x): self.x = x\n"
        "def g(x): return math.sqrt(x)\ndef f(x): return P(g(x))"
    )

    assert call(tmp_path, code, inputs=[("x", 9)]).values[0].x == 3.0


def test_the_only_function_needs_no_name(tmp_path: Path) -> None:
    """Source with one function is enough."""
    assert call(tmp_path, "import os\ndef anything(): return 1", name="").values == [1]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("def f(:\n  pass", "func_code is not Python: "),
        ("def g(): pass\ndef h(): pass", "does not define 'f'"),
        ("", "func_name is 'f', which is not a builtin function"),
    ],
)
def test_errors_in_func_code_name_the_node(tmp_path: Path, code: str, text: str) -> None:
    """Errors in func_code are reported with the name of the node."""
    assert text in call(tmp_path, code).failure.text


def test_a_node_without_a_function_is_an_error(tmp_path: Path) -> None:
    """A PyFuncApp with blank name and code is an error."""
    assert "func_name and func_code are both blank" in call(tmp_path, "", name="").failure.text


@pytest.mark.parametrize("dumps", [cloudpickle.dumps, dill.dumps])
def test_pickled_functions_run(tmp_path: Path, dumps: Any) -> None:
    """A function in a base64 pickle, as DALiuGE's Python API writes it, is called."""
    space: dict[str, Any] = {}
    exec("def f(x): return x + 1", space)  # noqa: S102 - a function of no module, as in a notebook

    code = base64.b64encode(dumps(space["f"])).decode()

    assert call(tmp_path, code, inputs=[("x", 1)]).values == [2]


def test_a_failure_has_the_frames_of_the_function_only(tmp_path: Path) -> None:
    """The failure has the class, the text and the line in the source of the function, and no frames of dropflow."""
    failure = call(tmp_path, "def f():\n    return {}['lost']").failure

    assert failure.kind == "KeyError"
    assert "return {}['lost']" in failure.detail
    assert "dropflow/apps" not in failure.detail


def test_output_of_the_function_is_in_the_log(tmp_path: Path) -> None:
    """What the function prints is kept with its drop."""
    assert "hello from f" in call(tmp_path, "def f(): print('hello from f')").log


def test_input_parser_and_output_parser_set_the_encodings(tmp_path: Path) -> None:
    """A node without encodings uses input_parser and output_parser."""
    fields = (Argument(name="input_parser", value="eval"), Argument(name="output_parser", value="utf-8"))

    got = call(tmp_path, "def f(x): return x[0]", *fields, inputs=[("x", b"[7]")])

    assert got.contents == [b"7"]


def test_functions_without_a_signature_get_positional_arguments(tmp_path: Path) -> None:
    """A callable without a signature gets all arguments by position."""
    got = call(tmp_path, "", field("a", 2, "Integer"), field("b", 9, "Integer"), name="max")

    assert got.values == [9]


def test_text_at_a_typed_port_is_converted(tmp_path: Path) -> None:
    """Text at a port for numbers is converted to a number if possible."""
    fields = (port("a", encoding="utf-8", type="Integer"), port("b", encoding="utf-8", type="Integer"))

    assert call(tmp_path, "def f(a, b): return a, b", *fields, inputs=[("a", "5"), ("b", "five")]).values == [
        (5, "five")
    ]


def test_inputs_without_an_argument_of_their_name_go_to_varargs_or_kwargs(tmp_path: Path) -> None:
    """A named input goes to **kwargs, an unnamed one to *args; without these the log has a warning."""
    inputs = [("", 1), ("k", 2)]

    assert call(tmp_path, "def f(*a, **k): return a, k", inputs=inputs).values == [((1,), {"k": 2})]
    assert call(tmp_path, "def f(*a): return a", inputs=inputs).values == [(1, 2)]
    got = call(tmp_path, "def f(x=0): return 3", inputs=[("k", 2)])
    assert got.values == [3]
    assert "no argument for the input 'k'" in got.log


def test_all_outputs_of_a_path_port_get_the_same_content(tmp_path: Path) -> None:
    """The function writes once; every output of the port gets that file or directory."""
    code = f"{PATHS}def f(out):\n    Path(out).mkdir()\n    Path(out, 'x').write_text('mine')"
    outputs = [Wanted("out", component="dlg.data.drops.directory.DirectoryDROP")] * 2

    got = call(tmp_path, code, port("out", "OutputPort", "path"), outputs=outputs)

    assert got.result.failure is None
    assert [handle and (Path(handle.location) / "x").read_text() for handle in got.handles] == ["mine", "mine"]


def test_relative_paths_are_resolved_in_the_session_directory(tmp_path: Path) -> None:
    """A returned relative path is looked for in the session's files directory."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "made").write_text("mine")

    got = call(
        tmp_path, "def f(): return 'made'", port("o", "OutputPort", "path"), outputs=[Wanted("o", component=FILE)]
    )

    assert got.contents == [b"mine"]


def test_the_empty_path_is_not_the_directory_of_the_session(tmp_path: Path) -> None:
    """A function that returns no path fails: its output does not become a copy of the files of all drops."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "other").write_text("of another drop")

    got = call(tmp_path, "def f(): return ''", port("o", "OutputPort", "path"), outputs=[Wanted("o", component=FILE)])

    assert got.failure is not None
    assert "the value '' is not the path of an existing file" in got.failure.text


def test_func_defaults_may_be_pickled(tmp_path: Path) -> None:
    """Values of func_defaults may be pickles in base64; anything but an object is refused."""
    pickled = base64.b64encode(cloudpickle.dumps({1, 2})).decode()
    good = Argument(name="func_defaults", value={"x": pickled}, type="Json")

    assert call(tmp_path, "def f(x): return x", good).values == [{1, 2}]
    bad = Argument(name="func_defaults", value="[1]", type="Json")
    assert "expected an object" in call(tmp_path, "def f(x): return x", bad).failure.text


@pytest.mark.parametrize(
    ("pickled", "code", "text"),
    [
        (b"\x80\x05\x8c\x07nowhere\x94\x8c\x01f\x94\x93\x94.", "DF106", "needs the module 'nowhere'"),
        (b"\x80\x05\x8c\x04dill\x94\x8c\x0bnot_in_there\x94\x93\x94.", "DF105", "cannot be read"),
        (b"\x80\x05cut", "DF105", "cannot be read"),
    ],
)
def test_pickles_that_cannot_be_read_are_an_error(tmp_path: Path, pickled: bytes, code: str, text: str) -> None:
    """A pickle that needs something or is damaged fails with the reason."""
    failure = call(tmp_path, base64.b64encode(pickled).decode()).failure

    assert (failure.code, text in failure.text) == (code, True)


def test_an_import_error_of_the_module_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the module of the function is reported as such, and a missing module is named."""
    (tmp_path / "broken_stars.py").write_text("1 / 0")
    (tmp_path / "needy_stars.py").write_text("import surely_not_installed")
    monkeypatch.syspath_prepend(tmp_path)

    broken = call(tmp_path / "1", "", name="broken_stars.f").failure
    needy = call(tmp_path / "2", "", name="needy_stars.f").failure

    assert "'broken_stars' of the function 'broken_stars.f' cannot be imported: ZeroDivisionError" in broken.text
    assert "needs the module 'surely_not_installed'" in needy.text


def test_a_source_that_defines_several_functions_needs_a_name(tmp_path: Path) -> None:
    """Without func_name, several functions are an error."""
    assert "defines several functions" in call(tmp_path, "def g(): 0\ndef h(): 0", name="").failure.text


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.sets(st.sampled_from(["default", "defaults", "field", "port"])), min_size=1, max_size=5))
def test_each_argument_has_the_value_of_its_first_source(tmp_path: Path, sources: list[set[str]]) -> None:
    """An argument has the value of the source with the highest precedence; without one, the failure names it."""
    names = [f"a{number}" for number in range(len(sources))]
    signature = ", ".join(
        f"{name}='default'" if "default" in kinds else name for name, kinds in zip(names, sources, strict=True)
    )
    having = {
        kind: [name for name, kinds in zip(names, sources, strict=True) if kind in kinds]
        for kind in ("defaults", "field", "port")
    }
    fields = [Argument(name="func_defaults", value=dict.fromkeys(having["defaults"], "defaults"), type="Json")]
    fields += [field(name, "field") for name in having["field"] if name not in having["port"]]
    fields += [port(name, value="field" if name in having["field"] else "") for name in having["port"]]

    got = call(
        tmp_path,
        f"def f(*, {signature}): return [{', '.join(names)}]",
        *fields,
        inputs=[(name, "port") for name in having["port"]],
    )

    order = ("port", "field", "defaults", "default")
    wanted = [next((kind for kind in order if kind in kinds), "") for kinds in sources]
    if all(wanted):
        assert got.values == [wanted]
    else:
        assert all(
            (f"'{name}'" in got.failure.text) is not kind for name, kind in zip(names, map(bool, wanted), strict=True)
        )


def test_a_function_changes_a_copy_of_a_directory(tmp_path: Path) -> None:
    """At a port for both directions with path encoding, it gets a copy, which becomes the output at the port."""
    tree = tmp_path / "original"
    tree.mkdir()
    (tree / "kept").write_text("kept")
    code = 'def grow(tree):\n    open(f"{tree}/more", "w").close()\n    return "not used"'
    fields = (
        Argument(name="func_name", value="grow"),
        Argument(name="func_code", value=code),
        Argument(name="tree", encoding="path", usage="InputOutput", parameter_type="ApplicationArgument"),
    )
    directory = "dlg.data.drops.directory.DirectoryDROP"
    done = try_app(
        CLASS, tmp_path / "run", inputs=[Given("tree", tree)], outputs=[Wanted("tree", "", directory)], fields=fields
    )

    assert done.result.failure is None
    handle = done.handles[0]
    assert handle is not None
    assert sorted(path.name for path in Path(handle.location).iterdir()) == ["kept", "more"]
    assert [path.name for path in tree.iterdir()] == ["kept"]


def test_a_failure_has_the_values_that_went_in(tmp_path: Path) -> None:
    """Of arrays shape, type and range, of text the first line, of files the name; secrets are hidden by their names."""
    np.save(tmp_path / "sky.npy", np.array([[0.5, np.nan, 2.0]], np.float32))
    (tmp_path / "notes.txt").write_text("user=me password=hidden\nmore")
    (tmp_path / "mean.fits").write_text(f"{'SIMPLE  =                    T':80}" * 72)
    fields = (field("niter", 500, "Integer"), field("api_token", "hidden"), field("label", "secret:hidden"))
    paths = [port(name, encoding="path") for name in ("notes", "sky", "mean")]
    inputs = [
        ("image", np.arange(6).reshape(2, 3)), ("sky", tmp_path / "sky.npy"), ("notes", tmp_path / "notes.txt"),
        *(("many", number) for number in range(20)), ("lost", FAILED), ("mean", tmp_path / "mean.fits"),
    ]  # fmt: skip
    code = (
        "def f(image, sky, notes, many, niter, api_token, label, mean, lost=None): raise ValueError('no convergence')"
    )

    lines = call(tmp_path, code, *fields, *paths, inputs=inputs).failure.inputs

    assert lines[0].startswith("image: in0, ")
    assert lines[0].endswith(" Bytes, int64 (2, 3), 0 to 5")
    assert lines[1].startswith("sky: in1, sky.npy, 140 Bytes")
    assert lines[2].startswith("notes: in2, notes.txt, 28 Bytes")
    assert "lost: in23, ERROR" in lines
    assert "mean: in24, mean.fits, 5.8 kB" in lines, "its header is text, and says little"
    assert {"niter = 500", "api_token = ***", "label = 'secret:***'"} <= set(lines)
    assert "many = list of 20, the first: 0" in lines
    assert not any("hidden" in line for line in lines)


def test_a_function_knows_what_share_of_its_inputs_is_missing(tmp_path: Path) -> None:
    """Those that failed count as missing, and those that were skipped not; the content notes the largest share."""
    code = "import dropflow\ndef f(images, x): return dropflow.missing()"
    inputs = [("images", 1), ("images", FAILED), ("images", 2), ("images", 3), ("images", SKIPPED), ("x", 4)]

    got = call(tmp_path, code, inputs=inputs)

    assert got.values == [{"images": 0.25, "x": 0.0}]
    assert [handle.missing for handle in got.handles if handle] == [0.25]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fits", "h5", "zarr", "png", "txt"])
def test_the_missing_share_is_written_into_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """By one line; a file without a header is refused."""
    monkeypatch.setenv("DROPFLOW_MISSING", '{"images": 0.125}')  # as in a command
    path = tmp_path / f"x.{kind}"
    if kind == "fits":
        fits = pytest.importorskip("astropy.io.fits")
        fits.writeto(path, np.zeros((2, 2)))
        dropflow.write_missing(path)
        found = fits.getheader(path)["MISSING"]
    elif kind == "h5":
        h5py = pytest.importorskip("h5py")
        h5py.File(path, "w").close()
        dropflow.write_missing(path)
        with h5py.File(path) as file:
            found = file.attrs["missing"]
    elif kind == "zarr":
        zarr = pytest.importorskip("zarr")
        zarr.save(str(path), np.zeros(2))
        dropflow.write_missing(path)
        found = zarr.open(str(path), mode="r").attrs["missing"]
    elif kind == "png":
        image = pytest.importorskip("PIL.Image")
        image.new("L", (2, 2)).save(path)
        dropflow.write_missing(path)
        with image.open(path) as picture:
            picture.load()
            found = float(picture.text["missing"])
    else:
        path.write_text("text")
        with pytest.raises(dropflow.AppError, match=r"x\.txt has no header"):
            dropflow.write_missing(path)
        found = 0.125
    assert found == 0.125


# Objects that are passed through a graph.


COUNTER = (
    "class Counter:\n"
    "    def __init__(self, start=0): self.count = start\n"
    "    def add(self, step): self.count += step; return self.count * 10\n"
)


def node(directory: Path, name: str, code: str = "", *, inputs: Any = (), outputs: Any = ("self",)) -> Attempted:
    """Run a PythonMemberFunction node."""
    fields = (Argument(name="func_name", value=name), Argument(name="func_code", value=code))
    given = [Given(port, content) for port, content in inputs]
    return try_app(CLASS, directory, inputs=given, outputs=outputs, fields=fields, category="PythonMemberFunction")


def test_an_object_is_constructed_used_and_passed_on(tmp_path: Path) -> None:
    """An object of a class in func_code is passed from the constructor through a member function, with its changes."""
    made = node(tmp_path / "1", "Counter.__init__", COUNTER, inputs=[("start", 5)]).contents[0]

    used = node(tmp_path / "2", "Counter.add", inputs=[("self", made), ("step", 2)], outputs=["self", "result"])

    assert used.values[0].count == 7
    assert used.values[1] == 70


def test_classes_and_members_are_imported_by_dotted_names(tmp_path: Path) -> None:
    """Constructors and members can be given by dotted names."""
    made = node(tmp_path / "1", "fractions.Fraction.__init__", inputs=[("numerator", 1), ("denominator", 4)])

    used = node(
        tmp_path / "2",
        "fractions.Fraction.limit_denominator",
        inputs=[("self", made.contents[0]), ("max_denominator", 3)],
        outputs=["out"],
    )

    assert used.values[0] == made.values[0].limit_denominator(3)


def test_a_member_without_a_result_passes_the_object_on_only_at_self(tmp_path: Path) -> None:
    """The return value is written to the other outputs, also None."""
    used = node(tmp_path, "list.append", inputs=[("self", pickle.dumps([1])), ("", 2)], outputs=["self", "out"])

    assert used.values == [[1, 2], None]


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [("Counter.nothing", 5, "is a int and has no member function 'nothing'"), ("x.y", FAILED, "is missing")],
)
def test_a_missing_member_or_object_is_an_error(tmp_path: Path, name: str, content: Any, text: str) -> None:
    """A missing member and a missing object are different errors."""
    assert text in node(tmp_path, name, inputs=[("self", content)]).failure.text


@pytest.mark.parametrize(
    ("name", "base", "code"),
    [
        ("__init__", "fractions.Fraction", ""),
        ("Fraction", "fractions.Fraction", ""),
        ("__init__", "Counter", COUNTER),
        ("Counter", "anything.Counter", COUNTER),
    ],
)
def test_base_name_is_the_class_to_construct(tmp_path: Path, name: str, base: str, code: str) -> None:
    """A bare `__init__`, or the bare name of a class, means the class that base_name names."""
    values = {"func_name": name, "base_name": base, "func_code": code}
    fields = tuple(Argument(name=key, value=value) for key, value in values.items())
    made = try_app(CLASS, tmp_path, outputs=("self",), fields=fields, category="PythonMemberFunction")

    assert type(made.values[0]).__name__ == base.rpartition(".")[2]
