"""The small generic applications: copies, sleeps, greetings, checksums, groups."""

import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from dropflow.graph.templates import Argument
from dropflow.testing.attempts import FAILED, SKIPPED, Given, Wanted, try_app

SIMPLE = "dlg.apps.simple."
DIRECTORY = "dlg.data.drops.directory.DirectoryDROP"


@pytest.mark.parametrize("name", ["CopyApp", "GenericGatherApp", "SleepAndCopyApp"])
def test_inputs_are_joined_byte_for_byte(tmp_path: Path, name: str) -> None:
    """Every output gets all inputs, in order, for any size of blocks."""
    inputs = [Given("a", b"\x00one"), Given("b", b"two\xff")]

    got = try_app(SIMPLE + name, tmp_path, inputs=inputs, outputs=["x", "y"], fields={"bufsize": 2})

    assert got.contents == [b"\x00onetwo\xff"] * 2


def test_a_copy_of_text_is_marked_as_text(tmp_path: Path) -> None:
    """The copy of a text content is marked as text."""
    got = try_app(f"{SIMPLE}CopyApp", tmp_path, inputs=[Given("a", "wörds")], outputs=["x"])

    assert got.contents == ["wörds".encode()]
    assert got.handles[0] is not None
    assert got.handles[0].text


def test_directories_are_copied_with_all_they_contain(tmp_path: Path) -> None:
    """Directories are merged into a directory, and a file among them keeps its name."""
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / name).write_text(name)
    (tmp_path / "file").write_text("f")
    inputs = [Given("a", tmp_path / "one"), Given("a", tmp_path / "two"), Given("a", tmp_path / "file")]

    got = try_app(f"{SIMPLE}CopyApp", tmp_path / "s", inputs=inputs, outputs=[Wanted("x", component=DIRECTORY)])

    assert got.result.failure is None
    assert got.handles[0] is not None
    made = Path(got.handles[0].location)
    assert sorted(path.relative_to(made).as_posix() for path in made.rglob("*")) == [
        "file",
        "sub",
        "sub/one",
        "sub/two",
    ]


def test_a_directory_cannot_become_a_file(tmp_path: Path) -> None:
    """The failure names both ends."""
    got = try_app(
        f"{SIMPLE}CopyApp", tmp_path, inputs=[Given("a", tmp_path, name="folder")], outputs=[Wanted("x", "memory")]
    )

    assert "'folder' is a directory and output 'memory' is not" in got.failure.text


@pytest.mark.parametrize("name", ["CopyApp", "GenericGatherApp", "ArrayGatherApp", "DictGatherApp"])
def test_missing_inputs_are_logged(tmp_path: Path, name: str) -> None:
    """An application that runs without some inputs logs their names and number."""
    inputs = [Given("a", 1), Given("a", FAILED, name="broken"), Given("a", 2), Given("a", 3)]

    got = try_app(SIMPLE + name, tmp_path, inputs=inputs, outputs=["x"])

    assert got.result.failure is None
    assert "1 of 4 inputs failed; working without broken" in got.log


def test_an_application_without_any_content_fails(tmp_path: Path) -> None:
    """If no input has content, the attempt fails."""
    got = try_app(f"{SIMPLE}CopyApp", tmp_path, inputs=[Given("a", FAILED)] * 2, outputs=["x"])

    assert "no input has content: 2 of 2 inputs failed" in got.failure.text


def test_a_list_has_all_values_of_its_inputs(tmp_path: Path) -> None:
    """Values that several producers wrote into one drop are collected like values in drops of their own."""
    joined = b"".join(pickle.dumps(value, protocol=5) for value in (1, [2], None))
    got = try_app(f"{SIMPLE}ArrayGatherApp", tmp_path, inputs=[Given("a", joined), Given("a", 4)], outputs=["x"])

    assert got.values == [[1, [2], None, 4]]


def test_a_scatter_of_several_inputs_at_one_port_is_refused(tmp_path: Path) -> None:
    """Only one can be split, and the others would be lost."""
    inputs = [Given("a", [1, 2]), Given("a", [3, 4])]
    got = try_app(f"{SIMPLE}GenericScatterApp", tmp_path, inputs=inputs, outputs=["x", "x"])

    assert got.failure.text == "2 inputs come in at port 'a', and one can be split"


def test_failed_and_skipped_inputs_are_counted_separately(tmp_path: Path) -> None:
    """A skipped input is not called a failed one, neither in a failure nor in the log."""
    lost = [Given("a", FAILED, name="broken"), Given("a", SKIPPED, name="left out")]
    nothing = try_app(f"{SIMPLE}ArrayGatherApp", tmp_path, inputs=lost, outputs=["x"])
    something = try_app(f"{SIMPLE}ArrayGatherApp", tmp_path, inputs=[*lost, lost[1], Given("a", 1)], outputs=["x"])

    assert nothing.failure.text == "no input has content: 1 of 2 inputs failed, 1 was skipped"
    assert "1 of 4 inputs failed, 2 were skipped; working without broken, left out, left out" in something.log


def test_null_barrier_leaves_its_outputs_empty(tmp_path: Path) -> None:
    """NullBarrierApp leaves its outputs empty."""
    got = try_app(f"{SIMPLE}NullBarrierApp", tmp_path, inputs=[Given("a", 1)], outputs=["x"])

    assert got.contents == [b""]


@pytest.mark.parametrize("content", [0.001, "0.001", "words", b"\xff", [1], float("nan"), float("inf"), -1])
def test_sleep_time_may_come_from_a_port(tmp_path: Path, content: Any) -> None:
    """Data at the port are seconds, also as text; other data are ignored with a warning in the log."""
    got = try_app(
        f"{SIMPLE}SleepApp", tmp_path, inputs=[Given("sleep_time", content)], outputs=["x"], fields={"sleep_time": 60.0}
    )

    assert got.contents == [b""]
    assert ("not sleeping" in got.log) is (content not in (0.001, "0.001"))


def test_a_negative_sleep_is_refused(tmp_path: Path) -> None:
    """A field that is not a time is an error."""
    assert "at least 0" in try_app(f"{SIMPLE}SleepApp", tmp_path, fields={"sleepTime": -1}).failure.text


@pytest.mark.parametrize(
    ("content", "greeting"),
    [("you", "Hello, you"), (["a", "b"], "Hello, a"), (b"raw", "Hello, raw"), (7, "Hello, 7"), ([], "Hello, []")],
)
def test_the_greeting_has_the_name_from_input_or_field(tmp_path: Path, content: Any, greeting: str) -> None:
    """The name in the greeting is the input, the first element of a list, or the field."""
    app = f"{SIMPLE}HelloWorldApp"

    assert try_app(app, tmp_path, inputs=[Given("x", content)], outputs=["o"]).contents == [greeting.encode()]
    assert try_app(app, tmp_path, outputs=["o", "p"], fields={"greet": "you"}).contents == [b"Hello you"] * 2


def test_several_inputs_of_a_greeting_are_an_error(tmp_path: Path) -> None:
    """The hello application accepts one input only."""
    got = try_app(f"{SIMPLE}HelloWorldApp", tmp_path, inputs=[Given("x", 1), Given("x", 2)])

    assert "2 inputs are connected" in got.failure.text


def test_crc_writes_the_checksum_as_decimal_text(tmp_path: Path) -> None:
    """The output is the CRC-32 of the input as a decimal number."""
    content = bytes(range(256)) * 50

    got = try_app("dlg.apps.crc.CRCApp", tmp_path, inputs=[Given("d", content)], outputs=["c"])

    assert got.contents == [str(zlib.crc32(content)).encode()]
    assert "exactly one" in try_app("dlg.apps.crc.CRCApp", tmp_path).failure.text


def test_a_group_is_a_list_of_its_members(tmp_path: Path) -> None:
    """GroupByApp collects decoded values in order."""
    inputs = [Given("m", [1]), Given("m", "text"), Given("m", b"\xff raw")]

    got = try_app("dropflow.apps.GroupByApp", tmp_path, inputs=inputs, outputs=["g"])

    assert got.values == [[[1], "text", b"\xff raw"]]


def test_gathers_make_lists_or_dictionaries(tmp_path: Path) -> None:
    """ArrayGatherApp makes a list, DictGatherApp a dictionary by names, numbered where they repeat."""
    inputs = [Given("v", 1, name="a"), Given("v", 2, name="b"), Given("v", 3, name="a")]
    fields = (
        Argument(name="value_dict", value='{"z": 0}', type="Json"),
        Argument(name="y", value=5, parameter_type="ApplicationArgument"),
    )

    listed = try_app(f"{SIMPLE}ArrayGatherApp", tmp_path, inputs=inputs, outputs=["o", "p"])
    named = try_app(f"{SIMPLE}DictGatherApp", tmp_path, inputs=inputs, outputs=["o"], fields=fields)

    assert listed.values == [[1, 2, 3]] * 2
    assert named.values == [{"z": 0, "y": 5, "a-0": 1, "b": 2, "a-1": 3}]


def test_list_append_makes_a_list_of_the_given_length(tmp_path: Path) -> None:
    """ListAppendThrashingApp ends with a list of the given length."""
    got = try_app(f"{SIMPLE}ListAppendThrashingApp", tmp_path, outputs=["o"], fields={"size": 5})

    assert got.values == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("data", "first", "rest"),
    [([3, 4, 5], 3, [4, 5]), ([7], 7, []), ([], None, []), (None, None, []), (5, 5, []), ("ab", "ab", [])],
)
def test_pick_one_writes_the_first_element_and_the_rest(tmp_path: Path, data: Any, first: Any, rest: Any) -> None:
    """The first element is written to the outputs, the rest to the one called rest_array, by port or by drop."""
    outputs = ["element", "rest_array", Wanted("other", name="rest_array")]

    got = try_app(f"{SIMPLE}PickOne", tmp_path, inputs=[Given("rest_array", data)], outputs=outputs)

    assert got.values == [first, rest, rest]


def test_pick_one_ignores_event_inputs(tmp_path: Path) -> None:
    """Of several inputs the array is the one at rest_array, and never an event."""
    event = Argument(name="go", type="Event", usage="InputPort")
    app = f"{SIMPLE}PickOne"

    assert try_app(
        app, tmp_path, inputs=[Given("go", 0), Given("x", [1, 2])], outputs=["e"], fields=(event,)
    ).values == [1]
    assert "no input has an array" in try_app(app, tmp_path, inputs=[Given("go", 0)], fields=(event,)).failure.text
