"""Graphs that cannot be used give problems with codes and exit status 2, never a traceback or a hang."""

import json
from pathlib import Path

import pytest

from tests.cli.answers import Command
from tests.cli.graph_documents import document, link, node

pytestmark = pytest.mark.slow


def nested(depth: int) -> bytes:
    """Return nested scatters of a thousand copies each."""
    nodes = [
        node(f"s{level}", "Scatter", parent=f"s{level - 1}" if level else "", num_of_copies=1000)
        for level in range(depth)
    ]
    return document([*nodes, node("d", "Memory", parent=f"s{depth - 1}")], [])


BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "LG001"),
    "no JSON": (b"hello", "LG001"),
    "cut off": (b'{"modelData": {', "LG001"),
    "not UTF-8": (b"\xff\xfe\x00", "LG001"),
    "a number": (b"42", "LG001"),
    "another document": (b'{"name": "package.json"}', "LG001"),
    "deep objects": (b'{"a":' * 100_000, "LG001"),
    "deep lists": (b"[" * 100_000, "PG001"),
    "dangling edge": (document([node("A", "BashShellApp", command="true")], [link("A", "B")]), "LG003"),
    "unknown parent": (document([node("A", "Memory", parent="nowhere")], []), "LG004"),
    "parents in a circle": (
        document(
            [node("a", "Scatter", parent="b", num_of_copies=2), node("b", "Scatter", parent="a", num_of_copies=2)], []
        ),
        "LG005",
    ),
    "twice the same id": (document([node("A", "Memory"), node("A", "Memory")], []), "LG006"),
    "missing port": (
        document(
            [node("A", "BashShellApp", command="true"), node("d", "Memory")],
            [{"from": "A", "fromPort": "gone", "to": "d", "toPort": "d-io"}],
        ),
        "LG010",
    ),
    "negative copies": (
        document([node("s", "Scatter", num_of_copies=-1), node("d", "Memory", parent="s")], []),
        "LG020",
    ),
    "copies in words": (
        document([node("s", "Scatter", num_of_copies="many"), node("d", "Memory", parent="s")], []),
        "LG020",
    ),
    "unknown category": (document([node("A", "Teleporter")], []), "LG030"),
    "cycle": (
        document([node("A", "BashShellApp", command="true"), node("d", "Memory")], [link("A", "d"), link("d", "A")]),
        "LG050",
    ),
    "too large": (nested(4), "LG120"),
    "a broken list of drops": (b'[{"oid": "a"}]', "PG001"),
}


@pytest.mark.parametrize("name", BAD)
def test_unroll_reports_the_problem(dropflow: Command, name: str) -> None:
    """`unroll --summary` lists the problem with its code, place and text; the exit status is 2."""
    data, code = BAD[name]
    done = dropflow("unroll", "-", "--summary", "--output", "json", stdin=data)
    problems = done.json["problems"]

    assert done.status == 2
    assert done.json["ok"] is False
    assert code in [found["code"] for found in problems], problems
    assert all(found["text"] for found in problems)


@pytest.mark.parametrize("name", ["cut off", "cycle", "too large", "a broken list of drops"])
def test_run_reports_the_problem(dropflow: Command, name: str) -> None:
    """`run` reads graphs as `unroll` does, and refuses the same ones, as JSON and as text."""
    data, code = BAD[name]
    done = dropflow("run", "-", "--output", "json", stdin=data)
    text_answer = dropflow("run", "-", stdin=data)

    assert (done.status, text_answer.status) == (2, 2)
    assert code in json.dumps(done.json)
    assert code in text_answer.err
    assert text_answer.out == b""


@pytest.mark.parametrize("name", ["run", "check", "unroll", "info"])
def test_a_path_that_is_not_a_file_is_bad_input(dropflow: Command, name: str, tmp_path: Path) -> None:
    """The message names the directory, or the file that does not exist."""
    for path in (tmp_path, tmp_path / "absent.graph"):
        done = dropflow(name, path, "--output", "json")

        assert done.status == 2
        assert path.name in done.out.decode()


def test_two_hundred_megabytes_of_braces_are_refused(process: Command, tmp_path: Path) -> None:
    """A huge file of braces neither hangs nor fills the memory."""
    path = tmp_path / "braces.graph"
    with path.open("wb") as stream:
        for _ in range(200):
            stream.write(b"{" * 1_000_000)
    done = process("check", path, "--output", "json", timeout=30)

    assert done.status == 2
    assert done.json["problems"][0]["code"] == "LG001"


def test_all_problems_are_reported(process: Command) -> None:
    """Each has its place in the document."""
    data = document(
        [node("A", "Teleporter"), node("s", "Scatter", num_of_copies="many"), node("d", "Memory", parent="s")],
        [link("d", "missing")],
    )
    done = process("check", "-", "--output", "json", stdin=data)
    errors = {found["code"]: found["where"] for found in done.json["problems"] if found["severity"] == "error"}

    assert {"LG003", "LG020", "LG030"} <= errors.keys()
    assert all(where.startswith("/") for where in errors.values())


def test_an_unknown_class_is_refused_before_anything_runs(dropflow: Command, tmp_path: Path) -> None:
    """All unknown classes are named, and no session directory is made."""
    nodes = [node("A", "DALiuGEApp", dropclass="nowhere.Alpha"), node("B", "DALiuGEApp", dropclass="nowhere.Beta")]
    done = dropflow("run", "-", "--keep", "here", stdin=document(nodes, []))

    assert done.status == 2
    assert "nowhere.Alpha" in done.err
    assert "nowhere.Beta" in done.err
    assert not (tmp_path / "here").exists()


def test_a_bad_graph_does_not_remove_earlier_results(dropflow: Command, examples: Path, tmp_path: Path) -> None:
    """The directory of --keep is cleared only when the next run begins."""
    dropflow("run", examples / "hello.graph", "--keep", "here")
    done = dropflow("run", "-", "--keep", "here", stdin=document([node("A", "DALiuGEApp", dropclass="no.Such")], []))

    assert done.status == 2
    assert (tmp_path / "here" / "files" / "hello.txt").exists()


def test_a_wrong_option_is_reported_as_json(dropflow: Command) -> None:
    """A mistake on the command line has the shape of any other error."""
    done = dropflow("run", "x.graph", "--runner", "warp", "--output", "json")

    assert done.status == 2
    assert "warp" in done.json["error"]["text"]
