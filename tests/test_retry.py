"""Trying failed drops of a run again, after their cause was corrected."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from dropflow.engine.explain import explain_repeat
from dropflow.engine.journal import replay
from dropflow.engine.statistics import SessionResult
from dropflow.errors import (
    AmbiguousError,
    BadParameterError,
    ConflictError,
    DropflowError,
    NotFoundError,
    UsageError,
)
from dropflow.files import SessionLock
from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import load, save
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.sessions import local_run
from dropflow.sessions.local_run import resume, retry
from dropflow.sessions.options import RunOptions
from dropflow.states import SessionState
from dropflow.testing.drawing import row

CHECKED = RunOptions(runner="inline", check=True)
BASH = "dlg.apps.bash_shell_app.BashShellApp"


@pytest.fixture
def failed(tmp_path: Path) -> tuple[PhysicalGraph, Path]:
    """A run in which the commands LEFT and RIGHT failed, since the files `left` and `right` are missing.

    SOURCE -> large -> LEFT -> x -> JOIN, large -> RIGHT -> y -> JOIN -> sum, and RIGHT -> z -> LAST -> end.
    """
    drawing = GraphBuilder("failed")

    def command(name: str, text: str, **more: object) -> None:
        value = Argument(name="command", value=f"echo {name} >> {tmp_path}/marks; {text}")
        arguments = (value, Argument(name="word", value="none"), Argument(name="number", value=1, type="Integer"))
        drawing.app(name, component=BASH, arguments=arguments, **more)  # type: ignore[arg-type]

    for name in ("large", "x", "y", "z", "sum", "end"):
        drawing.data(name)
    command("SOURCE", "seq 1000 > %o0")
    command("LEFT", f"cat {tmp_path}/left && (wc -l < %i0; echo {{word}}) > %o0")
    command("RIGHT", f"cat {tmp_path}/right && tee %o0 < %i0 > %o1", tries=2)
    command("JOIN", "cat %i0 > %o0; wc -l < %i1 >> %o0")
    command("LAST", "wc -l < %i0 > %o0")
    for chain in ("SOURCE large LEFT x JOIN sum", "large RIGHT y JOIN", "RIGHT z LAST end"):
        names = chain.split()
        for source, target in pairwise(names):
            if (source, target) != ("JOIN", "sum") or chain.startswith("SOURCE"):
                drawing.connect(source, target)
    graph = drawing.build()
    result = local_run.run(graph, directory=local_run.prepare_directory(tmp_path / "run"), runner="inline")
    assert result.status is SessionState.FAILED
    (tmp_path / "marks").unlink()
    return graph, tmp_path / "run"


def again(directory: Path, *drops: str, settings: tuple[str, ...] = ()) -> tuple[SessionResult, list[str]]:
    """Retry; return the result and the applications that have run."""
    marks = directory.parent / "marks"
    marks.unlink(missing_ok=True)
    result = retry(directory, drops, CHECKED, settings=settings)
    return result, marks.read_text().split()


def test_failed_drops_and_what_hangs_on_them_run_again(failed: tuple[PhysicalGraph, Path]) -> None:
    """After the fix the run is FINISHED; the large content that was released is made again."""
    _, directory = failed
    for name in ("left", "right"):
        (directory.parent / name).touch()
    result, ran = again(directory)

    assert result.status is SessionState.FINISHED
    assert result.failures == ()
    assert sorted(ran) == ["JOIN", "LAST", "LEFT", "RIGHT", "SOURCE"]
    assert (directory / "results" / "failed_sum_0.txt").read_text() == "1000\nnone\n1000\n"
    assert result.notes[0].startswith("continued: 0 drops kept, 9 drops tried again after a failure")


def test_one_drop_is_tried_again(failed: tuple[PhysicalGraph, Path]) -> None:
    """Only the causes of the named drops run, and what hangs on them; a drop is named by the end of its id."""
    graph, directory = failed
    (directory.parent / "right").touch()
    result, ran = again(directory, "LAST_0")

    assert result.status is SessionState.FAILED
    assert [failure.drop for failure in result.failures] == ["failed_LEFT_0"]
    assert ran == ["SOURCE", "RIGHT", "LAST"]
    assert (directory / "results" / "failed_end_0.txt").read_text() == "1000\n"
    known = replay(graph, directory / "journal.dfj").known
    assert known is not None
    assert [*explain_repeat(graph, known, row(graph, "RIGHT"))] == [
        "attempt 2 does not count as a try: failed drops were tried again with 'dropflow retry'"
    ]
    (directory.parent / "left").touch()
    result, ran = again(directory)
    assert result.status is SessionState.FINISHED
    assert sorted(ran) == ["JOIN", "LEFT", "RIGHT", "SOURCE"], "its part in memory was lost with the process"


def test_a_failed_drop_has_all_of_its_tries_again(failed: tuple[PhysicalGraph, Path]) -> None:
    """The numbers of the attempts go on; the report counts all of them."""
    _, directory = failed
    (directory.parent / "left").touch()
    result, ran = again(directory)

    assert ran.count("RIGHT") == 2
    assert [(one.drop, one.attempts) for one in result.failures] == [("failed_RIGHT_0", 4)]


def test_a_parameter_of_the_failed_applications_is_set(failed: tuple[PhysicalGraph, Path]) -> None:
    """The new value holds for the drops that run; the graph in the directory has it, too."""
    _, directory = failed
    for name in ("left", "right"):
        (directory.parent / name).touch()
    again(directory, settings=("LEFT.word=other", "number=7"))
    graph = load(directory / "graph.dfg")
    values = {node.name: [one.value for one in node.arguments[1:]] for node in graph.templates if node.arguments}

    assert (directory / "results" / "failed_sum_0.txt").read_text() == "1000\nother\n1000\n"
    assert values["LEFT"] == ["other", 7]
    assert values["RIGHT"] == ["none", 7]
    assert values["JOIN"] == ["none", 1]
    assert resume(directory).status is SessionState.FINISHED


@pytest.mark.parametrize(
    ("settings", "kind", "text"),
    [
        (("number=many",), BadParameterError, "cannot be 'many'"),
        (("speed=3",), UsageError, "none of the nodes that failed has a parameter 'speed'"),
        (("JOIN.word=3",), UsageError, "none of the nodes that failed has a parameter"),
        (("word",), UsageError, "not of the form name=value"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    failed: tuple[PhysicalGraph, Path], settings: tuple[str, ...], kind: type[DropflowError], text: str
) -> None:
    """Nothing runs, and the session stays as it was."""
    _, directory = failed
    before = (directory / "journal.dfj").read_bytes(), (directory / "graph.dfg").read_bytes()
    with pytest.raises(kind, match=text):
        retry(directory, settings=settings, options=CHECKED)

    assert ((directory / "journal.dfj").read_bytes(), (directory / "graph.dfg").read_bytes()) == before


def test_fields_that_decide_about_settled_drops_cannot_be_set(tmp_path: Path) -> None:
    """A threshold has decided already; the error says what to do instead."""
    arguments = (Argument(name="command", value="false"), Argument(name="input_error_threshold", value=0))
    graph = GraphBuilder("one").app("FALSE", component=BASH, arguments=arguments).build()
    local_run.run(graph, directory=tmp_path / "run", runner="inline")
    with pytest.raises(BadParameterError, match="cannot be changed in a run that has begun"):
        retry(tmp_path / "run", settings=["input_error_threshold=50"], options=CHECKED)


def test_a_process_that_ends_between_two_renames_is_recovered(failed: tuple[PhysicalGraph, Path]) -> None:
    """A retry replaces the journal, then the graph. If it ends in between, the new graph is found beside the old."""
    _, directory = failed
    for name in ("left", "right"):
        (directory.parent / name).touch()
    old = (directory / "graph.dfg").read_bytes()
    again(directory, settings=("word=other",))
    save(load(directory / "graph.dfg"), directory / "graph.dfg.new")
    (directory / "graph.dfg").write_bytes(old)

    assert resume(directory).status is SessionState.FINISHED
    assert (directory / "graph.dfg").read_bytes() != old
    assert not (directory / "graph.dfg.new").exists()


@pytest.mark.parametrize(
    ("drop", "kind", "text"),
    [
        ("SOURCE_0", ConflictError, "failed_SOURCE_0 did not fail: it is COMPLETED"),
        ("nothing", NotFoundError, "nothing"),
        ("_0", AmbiguousError, "_0"),
    ],
)
def test_other_drops_are_refused(
    failed: tuple[PhysicalGraph, Path], drop: str, kind: type[DropflowError], text: str
) -> None:
    """The error says which drop did not fail, does not exist, or is meant by several ids."""
    with pytest.raises(kind, match=text):
        retry(failed[1], [drop], CHECKED)


def test_a_run_without_failures_is_refused(tmp_path: Path) -> None:
    """There is nothing to try again; so it is for a directory without a session, and one that is in use."""
    graph = GraphBuilder("one").app("TRUE", component=BASH, arguments=(Argument(name="command", value="true"),)).build()
    local_run.run(graph, directory=tmp_path / "run", runner="inline")
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: retry(tmp_path / "run"), "no drop of this run failed"),
        (lambda: retry(tmp_path), "no session in this directory"),
        (lambda: retry(tmp_path / "nowhere"), "no such directory"),
    ]
    for call, text in refused:
        with pytest.raises(DropflowError, match=text):
            call()
    with SessionLock(tmp_path / "run"), pytest.raises(ConflictError, match="another process"):
        retry(tmp_path / "run")
