"""``dropflow nodes``."""

from tests.cli.answers import Command


def test_nodes_are_listed_with_their_load(ask: Command) -> None:
    """There is one line a node; the exit status is 0 if all are alive."""
    answer = ask("nodes")

    assert answer.status == 0
    lines = answer.text.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["node-1", "node-2"]
    assert lines[3] == "2 nodes on 1 host with 2 cores"  # they share its two processors
