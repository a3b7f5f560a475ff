"""Running one graph on this machine: its session directory and its result."""

from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from dropflow.engine.journal import replay
from dropflow.errors import BadGraphError, BadParameterError, ConflictError, UsageError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import digest, load, save
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.sessions import local_run
from dropflow.states import SessionState
from dropflow.testing.fake_manager import VirtualClock

MEMORY = "dlg.data.drops.memory.InMemoryDROP"


def greeting(component: str = "dlg.apps.simple.HelloWorldApp") -> PhysicalGraph:
    """Return a graph with an application that writes a greeting to memory."""
    builder = GraphBuilder("greeting")
    arguments = (Argument(name="greet", value="you", parameter_type="ApplicationArgument"),)
    builder.app("greet", component=component, category="DALiuGEApp", arguments=arguments)
    builder.data("greeting", component=MEMORY, category="Memory")
    builder.connect("greet", "greeting")
    return builder.build()


@pytest.mark.parametrize("runner", ["inline", "threads", "processes", "dask"])
def test_a_run_leaves_the_documented_files(tmp_path: Path, runner: str) -> None:
    """The session directory has graph, journal, summary and result, and no temporary file or empty log."""
    graph = greeting()
    result = local_run.run(graph, directory=tmp_path, runner=runner, workers=2)

    assert result.status is SessionState.FINISHED
    assert digest(load(tmp_path / "graph.dfg")) == digest(graph)
    written = msgspec.json.decode((tmp_path / "summary.json").read_bytes())
    assert written == msgspec.json.decode(msgspec.json.encode(local_run.summary(result)))
    assert [path.read_text() for path in (tmp_path / "results").iterdir()] == ["Hello you"]
    assert not (tmp_path / "tmp").exists() or list((tmp_path / "tmp").iterdir()) == []
    assert list((tmp_path / "logs").iterdir()) == []
    assert replay(graph, tmp_path / "journal.dfj").core.status is SessionState.FINISHED


def test_an_unusable_graph_is_refused_before_files_are_written(tmp_path: Path) -> None:
    """An unknown class is refused with its node and name, and no file is written."""
    with pytest.raises(BadGraphError, match=r"no\.Such") as caught:
        local_run.run(greeting("no.Such"), directory=tmp_path)

    assert [found.code for found in caught.value.problems] == ["DF103"]  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_runner_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    """An unknown runner is refused; the hint has the known ones."""
    with pytest.raises(BadParameterError, match="warp") as caught:
        local_run.run(greeting(), directory=tmp_path, runner="warp")

    assert "processes" in caught.value.hint


def test_runs_of_the_same_second_have_different_directories(tmp_path: Path) -> None:
    """A directory is named after the graph and the UTC time, with a number if that exists."""
    clock = VirtualClock()
    names = [local_run.new_directory(greeting(), root=tmp_path, clock=clock).name for _ in range(3)]

    assert names[1:] == [f"{names[0]}-2", f"{names[0]}-3"]
    assert names[0].startswith("greeting-")


def test_only_files_of_a_session_are_removed(tmp_path: Path) -> None:
    """A directory with other files is refused and unchanged."""
    local_run.run(greeting(), directory=tmp_path, runner="inline")
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ConflictError, match=r"thesis\.tex"):
        local_run.prepare_directory(tmp_path)

    assert (tmp_path / "graph.dfg").exists()


def test_the_results_of_a_run_are_not_replaced_by_accident(tmp_path: Path) -> None:
    """A directory with a run that FINISHED is refused and unchanged, unless it is to be overwritten."""
    local_run.run(greeting(), directory=tmp_path, runner="inline")
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(ConflictError, match="has the results of a run that FINISHED") as caught:
        local_run.prepare_directory(tmp_path)

    assert "--overwrite" in caught.value.hint
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    local_run.prepare_directory(tmp_path, overwrite=True)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_no_session_made_is_refused(tmp_path: Path) -> None:
    """A directory with names like those of a session, but without a graph, is refused."""
    (tmp_path / "files").mkdir()
    with pytest.raises(ConflictError, match="has no session"):
        local_run.prepare_directory(tmp_path)


def test_a_run_that_was_killed_while_it_wrote_its_graph_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run in the same directory removes the unfinished file, whose name is not one of a session (torture)."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt("killed")  # nothing is cleaned up either

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt, match="killed"):
            save(greeting(), tmp_path / "graph.dfg")
    (left,) = tmp_path.iterdir()
    local_run.prepare_directory(tmp_path)

    assert left.name.startswith(".graph.dfg.")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("removals", range(4))
def test_a_directory_that_was_emptied_in_part_is_still_one_of_a_session(
    removals: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the process is killed after any of the removals, the next run empties the rest."""
    local_run.run(greeting(), directory=tmp_path, runner="inline")
    left, unlink = [removals], Path.unlink

    def killed(self: Path, **more: bool) -> None:
        if self.exists() and self.name != "lock":
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
        unlink(self, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with suppress(KeyboardInterrupt):
            local_run.prepare_directory(tmp_path, overwrite=True)
    local_run.prepare_directory(tmp_path, overwrite=True)

    assert list(tmp_path.iterdir()) == []


def test_clearing_a_directory_follows_no_links(tmp_path: Path) -> None:
    """A link in place of a directory is removed; its target is unchanged."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("keep")
    session = tmp_path / "session"
    session.mkdir()
    (session / "graph.dfg").touch()
    (session / "files").symlink_to(precious)
    local_run.prepare_directory(session)

    assert (precious / "data").read_text() == "keep"
    assert list(session.iterdir()) == []


def test_a_file_in_place_of_the_directory_is_reported(tmp_path: Path) -> None:
    """If there is a file in place of the directory, the error has its path."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(UsageError, match="a file, not a directory") as caught:
        local_run.prepare_directory(tmp_path / "taken")

    assert caught.value.where.endswith("taken")
