"""Results of nested constructs, from the graph file to the content."""

import json
from pathlib import Path
from typing import Any

import pytest

from dropflow.sessions import local_run
from dropflow.states import SessionState
from tests.drawn_graphs import construct, data, draw, function
from tests.translator.documents import field, link, node, port
from translator.pipeline import Translation, translate


def joined(path: Path, *links: dict[str, Any]) -> Path:
    """Return a graph file with more links."""
    content = json.loads(path.read_bytes())
    content["linkDataArray"] += links
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def ran(source: Path, directory: Path) -> Translation:
    """Translate and run a graph, which must finish."""
    made = translate(source, name="g")
    result = local_run.run(
        made.graph, directory=local_run.prepare_directory(directory, overwrite=True), runner="inline"
    )
    assert result.status is SessionState.FINISHED
    return made


def groupby(name: str, key: str = "", inside: str = "") -> dict[str, Any]:
    """Return a group-by."""
    around = {"parentId": inside} if inside else {}
    return node(name, "GroupBy", field("group_key", key), isGroup=True, **{"name": name, **around})


@pytest.mark.parametrize(
    ("key", "groups"),
    [("", ["00 10", "01 11"]), ("Inner", ["00 10", "01 11"]), ("Outer", ["00 01", "10 11"])],
)
def test_nested_group_bys_group_by_their_keys(tmp_path: Path, key: str, groups: list[str]) -> None:
    """With nested group-bys of one scatter, a third one groups by the level in its key, or by the innermost."""
    both = function(
        "Both", "def Both(input, other):\n    return f'{other}{input[0][0]}'\n", inside="Inner", group_start=True
    )
    both["fields"].append(port("Both.other", "other", "InputPort", parameterType="ApplicationArgument"))
    nodes = [
        function("Make", "def Make():\n    return [[0], [1]]\n"),
        data("made"),
        construct("Split", "Scatter", size=2, dropclass="dlg.apps.simple.GenericScatterApp", element=True),
        data("piece", inside="Split"),
        groupby("Outer"),
        function("Take", "def Take(input):\n    return input[0][0]\n", inside="Outer", group_start=True),
        data("taken", inside="Outer"),
        groupby("Inner", inside="Outer"),
        both,
        data("pair", inside="Inner"),
        groupby("Groups", key),
        function(
            "Text",
            "def Text(input):\n    return ' '.join(input)\n",
            inside="Groups",
            group_start=True,
            encoding="utf-8",
        ),
        data("text", inside="Groups"),
    ]
    path = draw(
        tmp_path / "g.graph", nodes, "Make > made > Split > piece", "Take > taken", "Both > pair", "Text > text"
    )
    ends = (("piece", "Outer"), ("piece", "Inner"), ("pair", "Groups"))
    joined(path, link("taken", "taken.io", "Both", "Both.other"), *(link(a, f"{a}.io", b, "") for a, b in ends))

    assert [found.code for found in ran(path, tmp_path / "run").problems if found.code > "LG080"] == ["LG084"]
    assert [file.read_text() for file in sorted((tmp_path / "run" / "results").iterdir())] == groups


def test_a_loop_reads_its_own_output_from_the_second_iteration_on(tmp_path: Path) -> None:
    """Entry and carry edge end at one port, and neither is loop-aware: the application gets one value per iteration."""
    nodes = [
        function("Make", "def Make():\n    return 'a'\n"),
        data("made"),
        construct("Turn", "Loop", size=3),
        function("Add", "def Add(input):\n    return input + 'b'\n", inside="Turn"),
        data("value", inside="Turn"),
        function("Text", "def Text(input):\n    return input\n", encoding="utf-8"),
        data("text"),
    ]
    path = draw(tmp_path / "g.graph", nodes, "Make > made > Add > value", "Text > text")
    joined(
        path,
        link("value", "value.io", "Add", "Add.input", closesLoop=True),
        link("value", "value.io", "Text", "Text.input", loop_aware="1"),
    )

    assert [found.code for found in ran(path, tmp_path / "run").problems] == ["LG063"]
    assert [file.read_text() for file in (tmp_path / "run" / "results").iterdir()] == ["abbb"]


@pytest.mark.parametrize(("aware", "groups"), [("1", ["['abbb']"] * 2), ("0", ["['ab', 'abb', 'abbb']"] * 2)])
def test_a_group_by_takes_the_last_iteration_through_a_loop_aware_edge(
    tmp_path: Path, aware: str, groups: list[str]
) -> None:
    """With a loop in each copy of a scatter, a group has the last iteration, or all if the edge is not loop-aware."""
    nodes = [
        construct("Split", "Scatter", size=2),
        function("Make", "def Make():\n    return 'a'\n", inside="Split"),
        data("made", inside="Split"),
        construct("Turn", "Loop", size=3, inside="Split"),
        function("Add", "def Add(input):\n    return input + 'b'\n", inside="Turn"),
        data("value", inside="Turn"),
        groupby("Groups", "Split"),
        function(
            "Text",
            "def Text(input):\n    return repr(input)\n",
            inside="Groups",
            group_start=True,
            encoding="utf-8",
        ),
        data("text", inside="Groups"),
    ]
    path = draw(tmp_path / "g.graph", nodes, "Make > made > Add > value", "Text > text")
    joined(
        path,
        link("value", "value.io", "Add", "Add.input", closesLoop=True),
        link("value", "value.io", "Groups", "", loop_aware=aware),
    )

    ran(path, tmp_path / "run")
    assert [file.read_text() for file in sorted((tmp_path / "run" / "results").iterdir())] == groups
