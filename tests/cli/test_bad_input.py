"""Whatever is given as a graph: a code, a text, exit status 2, and never a traceback or a hang."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Dropflow = Callable[..., Any]


def node(name: str, category: str, *, parent: str = "", **fields: object) -> dict[str, Any]:
    """A node with an input-output port called io."""
    made: dict[str, Any] = {
        "id": name,
        "name": name,
        "category": category,
        "fields": [
            {"id": f"{name}-io", "name": "io", "usage": "InputOutput", "type": "Object"},
            *({"id": f"{name}-{key}", "name": key, "value": value} for key, value in fields.items()),
        ],
    }
    return made | ({"parentId": parent} if parent else {})


def link(source: str, target: str) -> dict[str, Any]:
    """An edge between the ports called io."""
    return {"from": source, "fromPort": f"{source}-io", "to": target, "toPort": f"{target}-io"}


def document(nodes: list[dict[str, Any]], links: list[dict[str, Any]]) -> bytes:
    """A graph of today's EAGLE."""
    about = {"fileType": "Graph", "schemaVersion": "OJS"}
    return json.dumps({"modelData": about, "nodeDataArray": nodes, "linkDataArray": links}).encode()


def nested(depth: int) -> bytes:
    """Scatters of a thousand copies in each other."""
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
def test_bad_graphs_are_refused_with_their_code(dropflow: Dropflow, name: str) -> None:
    """`unroll --summary` lists the problem with its code, place and text, and ends with 2."""
    data, code = BAD[name]
    done = dropflow("unroll", "-", "--summary", "--output", "json", stdin=data)
    problems = done.json["problems"]

    assert done.status == 2
    assert done.json["ok"] is False
    assert code in [found["code"] for found in problems], problems
    assert all(found["text"] for found in problems)


@pytest.mark.parametrize("name", BAD)
def test_bad_graphs_are_not_run(dropflow: Dropflow, name: str) -> None:
    """`run` refuses the same graphs, as JSON and as text."""
    data, code = BAD[name]
    done = dropflow("run", "-", "--output", "json", stdin=data)
    told = dropflow("run", "-", stdin=data)

    assert (done.status, told.status) == (2, 2)
    assert code in json.dumps(done.json)
    assert code in told.err
    assert told.out == b""


@pytest.mark.parametrize("command", ["run", "check", "unroll", "info"])
def test_files_that_are_none_are_refused(dropflow: Dropflow, command: str, tmp_path: Path) -> None:
    """A directory, and a file that is not there, are told by name."""
    for path in (tmp_path, tmp_path / "absent.graph"):
        done = dropflow(command, path, "--output", "json")

        assert done.status == 2
        assert path.name in done.out.decode()


def test_two_hundred_megabytes_of_braces_are_refused_quickly(dropflow: Dropflow, tmp_path: Path) -> None:
    """A huge file of nothing but braces neither hangs nor fills the memory."""
    path = tmp_path / "braces.graph"
    with path.open("wb") as stream:
        for _ in range(200):
            stream.write(b"{" * 1_000_000)
    done = dropflow("check", path, "--output", "json", timeout=30)

    assert done.status == 2
    assert done.json["problems"][0]["code"] == "LG001"


def test_all_problems_are_told_at_once(dropflow: Dropflow) -> None:
    """Several faults give several findings, each with its place in the document."""
    data = document(
        [node("A", "Teleporter"), node("s", "Scatter", num_of_copies="many"), node("d", "Memory", parent="s")],
        [link("d", "nobody")],
    )
    done = dropflow("check", "-", "--output", "json", stdin=data)
    errors = {found["code"]: found["where"] for found in done.json["problems"] if found["severity"] == "error"}

    assert {"LG003", "LG020", "LG030"} <= errors.keys()
    assert all(where.startswith("/") for where in errors.values())


def test_an_unknown_class_is_refused_before_anything_runs(dropflow: Dropflow, tmp_path: Path) -> None:
    """Every class that nobody knows is named, and no session is left behind."""
    nodes = [node("A", "DALiuGEApp", dropclass="nowhere.Alpha"), node("B", "DALiuGEApp", dropclass="nowhere.Beta")]
    done = dropflow("run", "-", "--keep", "here", stdin=document(nodes, []))

    assert done.status == 2
    assert "nowhere.Alpha" in done.err
    assert "nowhere.Beta" in done.err
    assert not (tmp_path / "here").exists()


def test_a_refused_graph_leaves_earlier_results_alone(dropflow: Dropflow, examples: Path, tmp_path: Path) -> None:
    """What --keep holds from the last run is cleared away only when the next one begins."""
    dropflow("run", examples / "hello.graph", "--keep", "here")
    done = dropflow("run", "-", "--keep", "here", stdin=document([node("A", "DALiuGEApp", dropclass="no.Such")], []))

    assert done.status == 2
    assert (tmp_path / "here" / "files" / "hello.txt").exists()


def test_a_wrong_option_is_told_as_json_too(dropflow: Dropflow) -> None:
    """A mistake on the command line has the same shape as any other refusal."""
    done = dropflow("run", "x.graph", "--runner", "warp", "--output", "json")

    assert done.status == 2
    assert "warp" in done.json["error"]["text"]
