"""Trying failed drops of a run again, after their cause was corrected."""

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dropflow.errors import AmbiguousError, BadParameterError, ConflictError, DropflowError, NotFoundError, UsageError
from dropflow.execution.drop_explanation import explain_repeat
from dropflow.execution.journal import replay
from dropflow.execution.statistics import SessionResult
from dropflow.files import SessionLock
from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import load, save
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.local_run import resume, retry
from dropflow.sessions.retry import OutsideInputs, choose, drops_to_repeat, refuse_mixed_results
from dropflow.states import DropState, SessionState
from dropflow.testing.drawing import draw, row
from tests.regular_graphs import fan

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
    result = local_run.run(graph, local_run.prepare_directory(tmp_path / "run"), RunOptions(runner="inline"))
    assert result.status is SessionState.FAILED
    (tmp_path / "marks").unlink()
    return graph, tmp_path / "run"


def again(directory: Path, *drops: str, settings: tuple[str, ...] = ()) -> tuple[SessionResult, list[str]]:
    """Retry; return the result and the applications that have run."""
    marks = directory.parent / "marks"
    marks.unlink(missing_ok=True)
    result = retry(directory, drops, CHECKED, settings=settings)
    return result, marks.read_text().split()


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_failed_drop_has_all_of_its_tries_again(failed: tuple[PhysicalGraph, Path]) -> None:
    """The numbers of the attempts go on; the report counts all of them."""
    _, directory = failed
    (directory.parent / "left").touch()
    result, ran = again(directory)

    assert ran.count("RIGHT") == 2
    assert [(failure.drop, failure.attempts) for failure in result.failures] == [("failed_RIGHT_0", 4)]


@pytest.mark.slow
def test_a_parameter_of_the_failed_applications_is_set(failed: tuple[PhysicalGraph, Path]) -> None:
    """The new value holds for the drops that run; the graph in the directory has it, too."""
    _, directory = failed
    for name in ("left", "right"):
        (directory.parent / name).touch()
    again(directory, settings=("LEFT.word=other", "number=7"))
    graph = load(directory / "graph.dfg")
    values = {
        node.name: [argument.value for argument in node.arguments[1:]] for node in graph.templates if node.arguments
    }

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
    local_run.run(graph, tmp_path / "run", RunOptions(runner="inline"))
    with pytest.raises(BadParameterError, match="cannot be changed in a run that has begun"):
        retry(tmp_path / "run", settings=["input_error_threshold=50"], options=CHECKED)


@pytest.mark.slow
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
    local_run.run(graph, tmp_path / "run", RunOptions(runner="inline"))
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: retry(tmp_path / "run"), "no drop of this run failed"),
        (lambda: retry(tmp_path), "no run in this directory"),
        (lambda: retry(tmp_path / "nowhere"), "no such directory"),
    ]
    for call, text in refused:
        with pytest.raises(DropflowError, match=text):
            call()
    with SessionLock(tmp_path / "run"), pytest.raises(ConflictError, match="another process"):
        retry(tmp_path / "run")


# Running an ended run again from some of its drops, on this machine.


N, C, E, S = DropState.INITIALIZED, DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED


def _command(builder: GraphBuilder, name: str, command: str, **more: object) -> None:
    arguments = (Argument(name="command", value=command), Argument(name="word", value="none"))
    builder.app(name, component="dlg.apps.bash_shell_app.BashShellApp", arguments=arguments, **more)  # type: ignore[arg-type]


def _file(builder: GraphBuilder, name: str, path: str) -> None:
    builder.data(name, component="dlg.data.drops.file.FileDROP", arguments=(Argument(name="filepath", value=path),))


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """A run that has ended: input -> READ -> lines -> LEFT -> left.txt -> JOIN -> sum, lines -> RIGHT -> right -> JOIN.

    `input` is the file ``input.txt`` outside of the run; `lines` is in memory; SIDE also reads it, and writes `side`.
    """
    (tmp_path / "input.txt").write_text("one\ntwo\n")
    builder = GraphBuilder("ended").data("lines").data("right").data("sum").data("side")
    _file(builder, "input", str(tmp_path / "input.txt"))
    _file(builder, "left", "left.txt")
    for name, command in {
        "READ": "seq 500 > %o0; cat %i0 >> %o0",
        "LEFT": f"cat {tmp_path}/left 2>/dev/null > %o0; tail -n 1 %i0 >> %o0; echo {{word}} >> %o0",
        "RIGHT": f"test ! -e {tmp_path}/stop && wc -l < %i0 > %o0",
        "JOIN": "cat %i0 %i1 > %o0",
        "SIDE": "tail -n 2 %i0 > %o0",
    }.items():
        _command(builder, name, f"echo {name} >> {tmp_path}/marks; {command}")
    for path in ("input READ lines LEFT left JOIN sum", "lines RIGHT right", "lines SIDE side"):
        names = path.split()
        for source, target in pairwise(names):
            builder.connect(source, target)
    graph = builder.connect("right", "JOIN").build()
    result = local_run.run(graph, local_run.prepare_directory(tmp_path / "run"), RunOptions(runner="inline"))
    assert result.status is SessionState.FINISHED
    return tmp_path / "run"


def _again(directory: Path, *drops: str, settings: tuple[str, ...] = ()) -> tuple[SessionResult, list[str]]:
    """Run again; return the result and the applications that have run."""
    marks = directory.parent / "marks"
    marks.unlink(missing_ok=True)
    result = retry(directory, (), CHECKED, start=drops, settings=settings)
    return result, marks.read_text().split() if marks.exists() else []


def _text(directory: Path, name: str) -> str:
    return (directory / name).read_text()


@pytest.mark.slow
def test_a_drop_and_what_depends_on_it_run_again(ended: Path) -> None:
    """The others keep their contents; what was released and is needed is made again, and explain says why."""
    (ended.parent / "left").write_text("new\n")
    side = (ended / "results" / "ended_side_0.txt").stat().st_ctime_ns
    result, ran = _again(ended, "LEFT")

    assert (result.status, ran) == (SessionState.FINISHED, ["READ", "LEFT", "JOIN"])
    assert _text(ended, "results/ended_sum_0.txt") == "new\ntwo\nnone\n502\n"
    assert (ended / "results" / "ended_side_0.txt").stat().st_ctime_ns == side
    assert result.notes[0] == (
        "continued: 5 drops kept, 4 drops run again as was asked for, 1 drop run again because contents were released"
    )
    assert result.notes[1].startswith("contents that were released and are needed again: ")
    graph = load(ended / "graph.dfg")
    known = replay(graph, ended / "journal.dfj").known
    assert known is not None
    again = next(drop for drop in known.reset if drop in known.released)
    assert "its content was released after its last consumer, and" in next(explain_repeat(graph, known, again))
    assert [*explain_repeat(graph, known, row(graph, "LEFT"))] == [
        "attempt 1 does not count as a try: drops were run again with 'dropflow retry --from'"
    ]


@pytest.mark.slow
def test_a_parameter_is_changed_with_it(ended: Path) -> None:
    """It holds for what runs from then on, also in later processes; other nodes have no such parameter."""
    with pytest.raises(UsageError, match=r"none of the nodes that run again has a parameter 'RIGHT\.word'"):
        retry(ended, (), CHECKED, start=["LEFT"], settings=("RIGHT.word=x",))
    _again(ended, "LEFT", settings=("word=other",))

    assert _text(ended, "files/left.txt") == "two\nother\n"
    assert resume(ended).status is SessionState.FINISHED
    _again(ended, "JOIN")
    assert "other" in _text(ended, "results/ended_sum_0.txt")


@pytest.mark.slow
def test_contents_of_before_do_not_stay(ended: Path) -> None:
    """If what runs again fails, there is no file that could be taken for its result; a retry makes it."""
    (ended.parent / "stop").touch()
    result, _ = _again(ended, "RIGHT")

    assert result.status is SessionState.FAILED
    assert not (ended / "results" / "ended_sum_0.txt").exists()
    assert _text(ended, "files/left.txt") == "two\nnone\n"
    (ended.parent / "stop").unlink()
    assert retry(ended, (), CHECKED).status is SessionState.FINISHED
    assert _text(ended, "results/ended_sum_0.txt") == "two\nnone\n502\n"


@pytest.mark.slow
def test_a_process_that_ends_before_its_journal_begins_leaves_all_as_it_was(
    ended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal, the contents, and what a later process finds are those from before."""
    sums = _text(ended, "results/ended_sum_0.txt")
    with monkeypatch.context() as patch:
        patch.setattr("dropflow.execution.journal.Journal.append", _dies)
        with pytest.raises(KeyboardInterrupt, match="the process ends"):
            retry(ended, (), CHECKED, start=["LEFT"])

    assert _text(ended, "results/ended_sum_0.txt") == sums
    assert resume(ended).status is SessionState.FINISHED
    assert _again(ended, "JOIN")[1] == ["JOIN"]


def _dies(*_: object) -> None:
    raise KeyboardInterrupt("the process ends")


@pytest.mark.slow
def test_an_input_that_has_changed_is_not_mixed_with_results_of_before(ended: Path) -> None:
    """It has to be named, so that all that depends on it runs again; size and time of the last change count."""
    source = ended.parent / "input.txt"
    journal = (ended / "journal.dfj").read_bytes()
    for text in ("one\nthree\n", "ten\ntwo\n"):
        source.write_text(text)
        with pytest.raises(
            ConflictError, match=r"ended_input_0 has changed .* 2 drops that would stay depend on"
        ) as no:
            retry(ended, (), CHECKED, start=["LEFT", "RIGHT"])
        assert "--from ended_input_0" in no.value.hint
    shutil.copy2(source, f"{source}.old")
    source.unlink()
    for name in ("LEFT", "input"):
        with pytest.raises(ConflictError, match="need ended_input_0, which does not exist any more"):
            retry(ended, (), CHECKED, start=[name])
    assert (ended / "journal.dfj").read_bytes() == journal
    Path(f"{source}.old").rename(source)
    result, ran = _again(ended, "input")

    assert (result.status, sorted(ran)) == (SessionState.FINISHED, ["JOIN", "LEFT", "READ", "RIGHT", "SIDE"])
    assert _text(ended, "results/ended_side_0.txt") == "ten\ntwo\n"


def test_an_input_that_was_mended_is_read_again(tmp_path: Path) -> None:
    """The notes name it as an input: its content was neither lost nor released by the run."""
    source = tmp_path / "input.txt"
    source.write_text("cut")
    drawing = GraphBuilder("mended")
    _file(drawing, "input", str(source))
    _command(drawing, "READ", "grep whole %i0 > %o0")
    drawing.data("out").connect("input", "READ").connect("READ", "out")
    failed = local_run.run(drawing.build(), local_run.prepare_directory(tmp_path / "run"), RunOptions(runner="inline"))
    source.write_text("whole\n")
    result = retry(tmp_path / "run", (), CHECKED)

    assert (failed.status, result.status) == (SessionState.FAILED, SessionState.FINISHED)
    assert result.notes[0].endswith("1 drop read again as an input")
    assert result.notes[1] == "inputs that are read again: input"


def test_an_input_that_the_run_has_written_over_is_refused(tmp_path: Path) -> None:
    """Otherwise an application would read its own output."""
    (tmp_path / "table").write_text("1\n")
    builder = GraphBuilder("place")
    _file(builder, "before", str(tmp_path / "table"))
    _file(builder, "after", str(tmp_path / "table"))
    _command(builder, "ADD", "cat %i0 %i0 > %o0")
    graph = builder.connect("before", "ADD").connect("ADD", "after").build()
    local_run.run(graph, local_run.prepare_directory(tmp_path / "run"), RunOptions(runner="inline"))

    for name in ("ADD", "before"):
        with pytest.raises(ConflictError, match="place_before_0, which was written over by the session itself"):
            retry(tmp_path / "run", (), CHECKED, start=[name])
    assert (tmp_path / "table").read_text() == "1\n1\n"


STATES = {"A": C, "x": C, "B": C, "y": S, "D": S, "z": S, "w": C, "F": E, "v": E, "G": E}


def _states(graph: PhysicalGraph) -> tuple[np.ndarray, dict[int, int]]:
    column = np.array([STATES[template.name] for template in graph.templates], dtype=np.uint8)
    return column, dict.fromkeys((row(graph, name) for name in "FvG"), row(graph, "F"))


@pytest.mark.parametrize(
    ("names", "starts", "drops"),
    [
        ("A", "A", "A x B y D z w F v G"),
        ("x", "A", "A x B y D z w F v G"),
        ("B", "B", "B y D z w F v G"),
        ("y", "B", "B y D z w F v G"),
        ("F", "F", "F v G"),
        ("v F", "F", "F v G"),
    ],
)
def test_what_is_named_and_all_that_depends_on_it(names: str, starts: str, drops: str) -> None:
    """A data drop is written again by its producer, with all of its outputs, also one that it skipped."""
    graph = draw("A -> x -> B -> y -> D -> z, B -> w -> F -> v -> G")
    again = drops_to_repeat(graph, *_states(graph), names.split())

    assert again.starts == tuple(sorted(row(graph, name) for name in starts.split()))
    assert again.drops == tuple(sorted(row(graph, name) for name in drops.split()))
    assert set(again.begun) == {row(graph, name) for name in drops.split()} & {row(graph, name) for name in "ABF"}


@pytest.mark.parametrize(
    ("name", "kind", "text", "hint"),
    [
        ("D", ConflictError, "drawing_D_0 has not run: it is SKIPPED", "such as the branch"),
        ("z", ConflictError, "drawing_z_0 has not run: it is SKIPPED", "such as the branch"),
        ("G", ConflictError, "drawing_G_0 has not run: it is ERROR", "because of drawing_F_0"),
        ("Q", NotFoundError, "there is no drop 'Q'", ""),
        ("_0", AmbiguousError, "10 drops end in '_0'", "or the whole id"),
    ],
)
def test_what_has_not_run_is_refused(name: str, kind: type[DropflowError], text: str, hint: str) -> None:
    """The error says why, and what to name."""
    graph = draw("A -> x -> B -> y -> D -> z, B -> w -> F -> v -> G")
    with pytest.raises(kind, match=text) as refused:
        drops_to_repeat(graph, *_states(graph), [name])
    assert hint in refused.value.hint


def test_a_name_stands_for_all_drops_of_a_node() -> None:
    """Those that have run; the others cannot run again."""
    graph = fan(10)
    states = np.full(graph.drops, C, dtype=np.uint8)
    apps = [drop for drop in range(graph.drops) if graph.templates[graph.template[drop]].name == "app"]
    states[apps[0]] = S
    again = drops_to_repeat(graph, states, {}, ["App"])

    assert len(apps) > 2
    assert again.starts == tuple(apps[1:])


@pytest.mark.parametrize(
    ("reset", "inputs", "refusal"),
    [
        ("", OutsideInputs(), ""),
        (
            "r A x",
            OutsideInputs(),
            "drawing_r_0 has to be read again, and 2 drops that would stay depend on its old content",
        ),
        ("A x", OutsideInputs(changed=frozenset({0})), "drawing_r_0 has changed"),
        ("", OutsideInputs(changed=frozenset({0})), ""),
        ("A x", OutsideInputs(missing=frozenset({0})), "which does not exist any more"),
        ("", OutsideInputs(missing=frozenset({0}), replaced=frozenset({0})), ""),
        ("r A x C z", OutsideInputs(changed=frozenset({0})), ""),
    ],
)
def test_results_of_different_inputs_are_not_mixed(reset: str, inputs: OutsideInputs, refusal: str) -> None:
    """An input counts only if it is read; then nothing that stays may depend on what it was."""
    graph = draw("r -> A -> x -> B -> y, r -> C -> z", r={"component": "dlg.data.drops.file.FileDROP"})
    assert row(graph, "r") == 0
    column = np.zeros(graph.drops, dtype=np.bool_)
    column[[row(graph, name) for name in reset.split()]] = True
    states, repeated = np.full(graph.drops, C, dtype=np.uint8), [row(graph, "B"), row(graph, "y")]
    check: Callable[[], None] = lambda: refuse_mixed_results(graph, states, repeated, column, inputs)  # noqa: E731
    if refusal:
        with pytest.raises(ConflictError, match=refusal):
            check()
    else:
        check()


def test_many_failures_are_chosen_at_once() -> None:
    """Each of 60,000 failed drops is looked at once, and not compared with all others, which takes minutes."""
    graph = fan(60_000)
    states = np.full(graph.drops, DropState.ERROR, np.uint8)
    causes = {drop: drop for drop in range(graph.drops)}

    again = choose(graph, states, causes)

    assert again.repeated == again.retried == tuple(causes)
