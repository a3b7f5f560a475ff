"""``dropflow clone``: a session is run again with other values."""

from pathlib import Path

import pytest

from dropflow.graph.logical_note import logical_of
from dropflow.testing.fake_manager import FakeManager
from tests.cli.answers import Command
from translator.pipeline import translate

pytestmark = pytest.mark.slow


def test_a_session_is_cloned_with_other_values(ask: Command, manager: FakeManager, examples: Path) -> None:
    """The graph is translated again with the values of the session and the new ones; a clone can be cloned."""
    source = examples / "error-threshold.graph"
    first = translate(source, settings=["Collect.input_error_threshold=10"]).graph
    manager.add(first, "first")
    answer = ask("clone", "first", "--set", "Collect.input_error_threshold=20", "--name", "second", "--output", "json")

    assert (answer.status, answer.json["session"]) == (0, "second")
    made = manager.graph("second")
    assert made.drops == first.drops
    thresholds = {template.error_threshold for template in made.templates if template.name == "Collect"}
    assert thresholds == {20.0}
    note = logical_of(made)
    assert note is not None
    assert note.settings == ("Collect.input_error_threshold=20",)
    assert ask("clone", "second", "--name", "third").status == 0
    assert {
        template.error_threshold for template in manager.graph("third").templates if template.name == "Collect"
    } == {20.0}


def test_a_physical_graph_is_cloned_as_it_is(ask: Command, manager: FakeManager) -> None:
    """Values need a logical graph: the message says why they cannot change, and what can be done."""
    refused = ask("clone", "finished", "--set", "n=4")

    assert refused.status == 2
    assert "has no copy of a logical graph" in refused.err
    assert ask("clone", "finished", "--name", "again").status == 0
    assert manager.graph("again").drops == manager.graph("finished").drops
    assert ask("clone", "finished", "--name", "a/b").status == 2
