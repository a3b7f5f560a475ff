"""``dropflow nodes``."""

from pathlib import Path

from tests.cli.answers import Command
from tests.cli.graph_documents import document, node


def test_nodes_are_listed_with_their_load(ask: Command) -> None:
    """There is one line a node; the exit status is 0 if all are alive."""
    answer = ask("nodes")

    assert answer.status == 0
    lines = answer.text.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["node-1", "node-2"]
    assert lines[3] == "2 nodes on 1 host with 2 cores"  # they share its two processors


def test_components_of_nodes_are_listed(ask: Command, tmp_path: Path) -> None:
    """Without a graph there is one line a node; with one, also what of it each node cannot run."""
    graph = tmp_path / "g.graph"
    graph.write_bytes(
        document(
            [
                node("image", "BashShellApp", command="wsclean -h"),
                node("copy", "DALiuGEApp", dropclass="dlg.apps.simple.CopyApp"),
            ],
            [],
        )
    )

    alone, lacking = ask("nodes", "--components"), ask("nodes", "--components", graph)

    assert alone.status == 0
    assert [line.split()[0] for line in alone.text.splitlines()] == ["node", "node-1", "node-2"]
    assert lacking.status == 1
    assert [line.split()[:2] for line in lacking.text.splitlines()[-2:]] == [["image", "node-1"], ["image", "node-2"]]
