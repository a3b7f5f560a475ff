"""``dropflow submit --like``: a session is run again with other values."""

from pathlib import Path

import msgspec
import pytest

from dropflow.api.submission_note import note_options, options_of
from dropflow.graph.notes import logical_of, planning_of
from dropflow.graph.physical import is_fused
from dropflow.sessions.options import SubmitOptions
from dropflow.testing.fake_manager import FakeManager
from tests.cli.answers import Command
from translator.pipeline import translate

pytestmark = pytest.mark.slow


def test_a_session_is_cloned_with_other_values(ask: Command, manager: FakeManager, examples: Path) -> None:
    """The graph is translated again with the values of the session and the new ones; a clone can be cloned."""
    source = examples / "error-threshold.graph"
    first = translate(source, settings=["Collect.input_error_threshold=10"]).graph
    manager.add(first, "first")
    answer = ask(
        "submit", "--like", "first", "--set", "Collect.input_error_threshold=20", "--name", "second", "--output", "json"
    )

    assert (answer.status, answer.json["session"]) == (0, "second")
    made = manager.graph("second")
    assert made.drops == first.drops
    thresholds = {template.error_threshold for template in made.templates if template.name == "Collect"}
    assert thresholds == {20.0}
    note = logical_of(made)
    assert note is not None
    assert note.settings == ("Collect.input_error_threshold=20",)
    assert ask("submit", "--like", "second", "--name", "third").status == 0
    assert {
        template.error_threshold for template in manager.graph("third").templates if template.name == "Collect"
    } == {20.0}


def test_a_physical_graph_is_cloned_as_it_is(ask: Command, manager: FakeManager) -> None:
    """Values need a logical graph: the message says why they cannot change, and what can be done."""
    refused = ask("submit", "--like", "finished", "--set", "n=4")

    assert refused.status == 2
    assert "has no copy of a logical graph" in refused.err
    assert ask("submit", "--like", "finished", "--name", "again").status == 0
    assert manager.graph("again").drops == manager.graph("finished").drops
    assert ask("submit", "--like", "finished", "--name", "a/b").status == 2
    assert "give either GRAPH or --like SESSION" in ask("submit", "x.graph", "--like", "finished").err


def test_a_clone_has_the_options_of_the_submission(ask: Command, manager: FakeManager, examples: Path) -> None:
    """How it runs and how it is planned stay as they were, but for what is given; a past walltime is left out."""
    source = str(examples / "nested-scatter-gather.graph")
    how = ("--replicas", "2", "--no-join", "--protect", "90s", "--no-fuse", "--until", "2h")
    plan = ("--algorithm", "heft", "--imbalance", "7", "--seed", "3", "--deadline", "1e6")
    assert ask("submit", source, "--name", "first", *how, *plan).status == 0
    answer = ask("submit", "--like", "first", "--name", "second", "--replicas", "1", "--fuse", "--algorithm", "metis")

    assert answer.status == 0
    first, second = (manager.graph(name) for name in ("first", "second"))
    assert options_of(first).until > 0
    assert options_of(second) == msgspec.structs.replace(options_of(first), replicas=1, fuse=True)
    assert (options_of(second).join, options_of(second).protect) == (False, 90.0)
    assert is_fused(second)
    assert planning_of(first) == {"algorithm": "heft", "imbalance": 7.0, "seed": 3, "deadline": 1e6}
    assert planning_of(second) == planning_of(first) | {"algorithm": "metis"}
    manager.add(note_options(first, SubmitOptions(until=1.0)), "old")
    answer = ask("submit", "--like", "old", "--name", "third")
    assert "the walltime of session old has passed" in answer.err
    assert options_of(manager.graph("third")).until == 0.0
