"""``dropflow submit``, and how it partitions and places a graph."""

import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dropflow import Graph, app
from dropflow.api.node_records import NodeInfo
from dropflow.api.requests import SubmitQuery
from dropflow.api.session_records import SessionDetail, SessionInfo
from dropflow.cli.sessions import watch
from dropflow.graph.notes import logical_of, note_options, planning_of, submission_options
from dropflow.graph.physical import PhysicalGraph, is_fused
from dropflow.session_options import SubmitOptions
from managers.manager_server import Service
from managers.planning import assign
from tests.cli.answers import Command
from tests.e2e.cluster import until
from tests.fake_manager import FakeManager
from translator.pipeline import translate


@app
def _numbered(number: int = 0) -> int:
    return number


EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
NODES = ("a", "b", "c")


@pytest.mark.slow
def test_each_node_gets_one_part(ask: Command, manager: FakeManager) -> None:
    """The graph has as many parts as nodes are alive."""
    answer = ask("submit", EXAMPLES / "nested-scatter-gather.graph", "--name", "mine", "--output", "json")

    assert (answer.status, answer.json["session"], answer.json["parts"]) == (0, "mine", 2)
    assert set(manager.graph("mine").places) == {"node-1", "node-2"}


@pytest.mark.slow
def test_random_parts_depend_on_the_seed(ask: Command, manager: FakeManager) -> None:
    """With --random, equal seeds give equal parts."""
    graph = EXAMPLES / "nested-scatter-gather.graph"
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        ask("submit", graph, "--name", name, "--random", seed, "-n", 5)
    first, again, other = (manager.graph(name).part.tolist() for name in "abc")

    assert first == again != other
    assert set(first) == set(range(5))


def end_when_submitted(manager: FakeManager, session: str, *, error: str = "") -> None:
    """Complete a session as soon as it is there, after its first drop has failed with an error if one is given."""

    def end() -> None:
        assert until(lambda: any(one.session == session for one in manager.sessions()))
        if error:
            manager.fail(session, 0, error)
        manager.complete(session)

    threading.Thread(target=end).start()


@pytest.mark.slow
def test_wait_answers_like_run(ask: Command, manager: FakeManager) -> None:
    """With --wait, the answer comes at the end of the session and has the fields of `run`."""
    end_when_submitted(manager, "mine")
    answer = ask("submit", EXAMPLES / "hello.graph", "--name", "mine", "--wait", "--output", "json")
    wanted = {"ok", "session", "status", "drops", "states", "seconds", "failures", "notes", "output"}

    assert answer.status == 0
    assert wanted <= answer.json.keys()
    assert answer.json["states"] == {"COMPLETED": 2, "ERROR": 0, "SKIPPED": 0}


@pytest.mark.slow
def test_wait_for_a_failed_session(ask: Command, manager: FakeManager) -> None:
    """With --wait, the exit status is 1 if the session FAILED."""
    end_when_submitted(manager, "mine", error="no sky")
    answer = ask("submit", EXAMPLES / "hello.graph", "--name", "mine", "--wait")

    assert answer.status == 1
    assert "no sky" in answer.text


@pytest.mark.slow
def test_wait_while_the_manager_is_away(ask: Command, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manager is asked again; the exit status is 3 if it does not answer for too long."""
    follow = watch.follow

    def end(*arguments: Any, **options: Any) -> SessionDetail:
        service.close()
        return follow(*arguments, **options)

    monkeypatch.setattr(watch, "follow", end)
    answer = ask("submit", EXAMPLES / "hello.graph", "--wait", "--patience", "0.5")

    assert answer.status == 3
    assert "asking again for up to 0.5 s" in answer.err
    assert "away for 0.5 s" in answer.err


@pytest.mark.slow
def test_a_manager_that_takes_connections_and_never_answers_is_given_up(ask: Command) -> None:
    """The patience of the user counts, and not the longer time that a request may take."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        answer = ask("submit", EXAMPLES / "hello.graph", "--to", url, "--wait", "--patience", "1")

    assert answer.status == 3
    assert "no answer for 1 s" in answer.err


@pytest.mark.slow
def test_a_bad_session_name_is_refused_before_anything_is_sent(ask: Command, manager: FakeManager) -> None:
    """A name that is not a safe path segment is bad input."""
    before = len(manager.sessions())
    answer = ask("submit", EXAMPLES / "hello.graph", "--name", "../up")

    assert answer.status == 2
    assert "--name" in answer.err
    assert len(manager.sessions()) == before


@pytest.mark.slow
def test_nodes_that_are_not_alive_are_reported(ask: Command, manager: FakeManager) -> None:
    """A lost node gets nothing, and a note has its name and why."""
    manager.set_node(NodeInfo(name="gone", state="lost", text="silent for 20 s"))
    answer = ask("submit", EXAMPLES / "nested-scatter-gather.graph", "--name", "mine")

    assert answer.status == 0
    assert "node gone is lost: silent for 20 s: nothing is planned for it" in answer.err
    assert set(manager.graph("mine").places) == {"node-1", "node-2"}


@pytest.mark.slow
@pytest.mark.parametrize("by", ["command", "Python"])
def test_a_node_lost_while_the_graph_is_planned_is_left_out(
    by: str, ask: Command, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph that names no nodes runs on those that are left, however late one of the others is lost."""
    submit = manager.submit

    def lose_a_node(graph: PhysicalGraph, query: SubmitQuery) -> SessionInfo:
        lost = NodeInfo(name="node-2", state="suspect", text="nothing listens there")
        manager.set_node(lost)
        assign(graph, manager.nodes(), anew=query.anew)
        return submit(graph, query)

    monkeypatch.setattr(manager, "submit", lose_a_node)
    if by == "Python":
        with Graph("written") as graph:
            _numbered(1)
        graph.submit(session="mine").close()
    else:
        answer = ask("submit", EXAMPLES / "nested-scatter-gather.graph", "--name", "mine")
        assert answer.status == 0
        assert "the graph is placed again, without node-2" in answer.err

    assert set(manager.graph("mine").places) == {"node-1"}


@pytest.mark.slow
def test_a_node_that_only_the_manager_knows_to_be_lost_is_left_out(
    ask: Command, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the nodes are all alive when they are looked up again, the manager chooses those that it can use."""
    submit = manager.submit
    known = (
        NodeInfo(name="node-1", state="alive"),
        NodeInfo(name="node-2", state="suspect", text="nothing listens there"),
    )

    def refuse(graph: PhysicalGraph, query: SubmitQuery) -> SessionInfo:
        return submit(replace(graph, places=assign(graph, known, anew=query.anew).places), query)

    monkeypatch.setattr(manager, "submit", refuse)
    answer = ask("submit", EXAMPLES / "nested-scatter-gather.graph", "--name", "mine")

    assert answer.status == 0
    assert "on nodes that the manager chooses" in answer.err
    assert set(manager.graph("mine").places) == {"node-1"}


@pytest.mark.slow
def test_nodes_of_the_user_are_not_exchanged(
    ask: Command, manager: FakeManager, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A graph that names a node which is lost is refused: placing it elsewhere takes --anew."""
    placed = tmp_path / "placed.dfg"
    ask("map", EXAMPLES / "nested-scatter-gather.graph", "--nodes", "node-1,node-2", "-o", placed)
    manager.set_node(NodeInfo(name="node-2", state="suspect", text="nothing listens there"))
    submit = manager.submit

    def check_nodes(graph: PhysicalGraph, query: SubmitQuery) -> SessionInfo:
        assign(graph, manager.nodes(), anew=query.anew)
        return submit(graph, query)

    monkeypatch.setattr(manager, "submit", check_nodes)
    answer = ask("submit", placed, "--name", "mine")

    assert answer.status == 2
    assert "'node-2' is suspect: nothing listens there" in answer.err


@pytest.mark.slow
def test_options_of_plans(ask: Command, manager: FakeManager) -> None:
    """They are those of ``dropflow partition``; a deadline that cannot be kept refuses the graph before it is sent."""
    before = len(manager.sessions())
    answer = ask("submit", EXAMPLES / "nested-scatter-gather.graph", "--deadline", "0.001")

    assert answer.status == 2
    assert "PT011" in answer.err
    assert len(manager.sessions()) == before


# ``dropflow submit --like``: a session is run again with other values.


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_physical_graph_is_cloned_as_it_is(ask: Command, manager: FakeManager) -> None:
    """Values need a logical graph: the message says why they cannot change, and what can be done."""
    refused = ask("submit", "--like", "finished", "--set", "n=4")

    assert refused.status == 2
    assert "has no copy of a logical graph" in refused.err
    assert ask("submit", "--like", "finished", "--name", "again").status == 0
    assert manager.graph("again").drops == manager.graph("finished").drops
    assert ask("submit", "--like", "finished", "--name", "a/b").status == 2
    assert "give either GRAPH or --like SESSION" in ask("submit", "x.graph", "--like", "finished").err


@pytest.mark.slow
def test_a_clone_has_the_options_of_the_submission(ask: Command, manager: FakeManager, examples: Path) -> None:
    """How it runs and how it is planned stay as they were, but for what is given; a past walltime is left out."""
    source = str(examples / "nested-scatter-gather.graph")
    how = ("--replicas", "2", "--no-join", "--protect", "90s", "--no-fuse", "--until", "2h")
    plan = ("--algorithm", "heft", "--imbalance", "7", "--seed", "3", "--deadline", "1e6")
    assert ask("submit", source, "--name", "first", *how, *plan).status == 0
    answer = ask("submit", "--like", "first", "--name", "second", "--replicas", "1", "--fuse", "--algorithm", "metis")

    assert answer.status == 0
    first, second = (manager.graph(name) for name in ("first", "second"))
    assert submission_options(first).until > 0
    assert submission_options(second) == msgspec.structs.replace(submission_options(first), replicas=1, fuse=True)
    assert (submission_options(second).join, submission_options(second).protect) == (False, 90.0)
    assert is_fused(second)
    assert planning_of(first) == {"algorithm": "heft", "imbalance": 7.0, "seed": 3, "deadline": 1e6}
    assert planning_of(second) == planning_of(first) | {"algorithm": "metis"}
    manager.add(note_options(first, SubmitOptions(until=1.0)), "old")
    answer = ask("submit", "--like", "old", "--name", "third")
    assert "the walltime of session old has passed" in answer.err
    assert submission_options(manager.graph("third")).until == 0.0
