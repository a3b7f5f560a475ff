"""What runs again after a change, and what is taken from earlier runs: twelve stories, told by two graphs.

One graph is drawn in JSON, the other one is written in Python. Each story compares which applications have run.
"""

import json
import os
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import dropflow
from dropflow import Graph
from dropflow.apps.builtin.testing import SleepApp
from dropflow.cli.main import commands
from dropflow.cli.run import ForecastReply
from dropflow.errors import StorageError
from dropflow.execution.executor_spec import KeyPart
from dropflow.files import REUSE_LOG
from dropflow.graph.codec import load
from dropflow.reuse import code, log, plan
from dropflow.reuse.attempt import differences
from dropflow.reuse.code import CodeReader
from dropflow.reuse.keys import node_keys
from dropflow.reuse.log import TakenCount, reuse_lines, taken_results
from dropflow.reuse.result_store import ResultStore
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.report import run_report
from dropflow.times.measured_run import MeasuredSeconds
from tests.drawn_graphs import app, data, draw, function
from tests.reuse.story import ALL, HELPERS, RMS, SHOW, Story, ran


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have the runs of a test use a store and a key of their own, and return the directory of the store."""
    monkeypatch.setenv("DROPFLOW_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it would be taken for that of a later edit
    return tmp_path / "store"


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """Return the graph in JSON, after a first run that has computed everything."""
    made = Story(tmp_path)
    assert made.run() == ("is 18", ALL)
    return made


def _contents(store: Path) -> list[Path]:
    return [path for path in (store / "contents").rglob("*") if path.is_file() and path.stat().st_size > 4096]


def _edit_parameter(story: Story) -> None:
    story.values["Rms"]["offset"] = 1


def _edit_function(story: Story) -> None:
    story.codes["Show"] = SHOW.replace("label}", "label}:")


def _edit_module(story: Story) -> None:
    story.helpers.write_text(HELPERS.replace("3 * x", "4 * x"))


def _edit_without_effect(story: Story) -> None:
    story.helpers.write_text(HELPERS.replace("3 * x", "x * 3"))


def _edit_comment(story: Story) -> None:
    story.codes["Rms"] = RMS.replace("import", "# It scales.\n\nimport")
    story.helpers.write_text(HELPERS + "\n\n# The end.\n")


def _edit_input(story: Story) -> None:
    story.input.write_text("1 2 4")


def _edit_input_without_effect(story: Story) -> None:
    story.input.write_text("1  2  3")


def _touch_input(story: Story) -> None:
    os.utime(story.input, ns=(1, 1))


def _edit_random(story: Story) -> None:
    story.values["Rms"]["deterministic"] = "no"


def _edit_ignored(story: Story) -> None:
    story.values["Show"]["n_tries"] = 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edit", "text", "runs"),
    [
        (lambda _: None, "is 18", set()),
        (_edit_parameter, "is 19", {"Rms", "Show"}),
        (_edit_function, "is: 18", {"Show"}),
        (_edit_module, "is 24", {"Rms", "Show"}),
        (_edit_without_effect, "is 18", {"Rms"}),
        (_edit_comment, "is 18", set()),
        (_edit_input, "is 21", ALL),
        (_edit_input_without_effect, "is 18", {"Read"}),
        (_touch_input, "is 18", set()),
        (_edit_random, "is 18", {"Rms"}),
        (_edit_ignored, "is 18", set()),
    ],
)
def test_only_what_depends_on_an_edit_runs(
    story: Story, edit: Callable[[Story], None], text: str, runs: set[str]
) -> None:
    """A result that is byte for byte the same ends it, and the edit undone finds the first results again."""
    before = (dict(story.codes), {name: dict(values) for name, values in story.values.items()})
    edit(story)
    assert story.run() == (text, runs)
    assert story.run() == (text, {"Rms"} if edit is _edit_random else set())
    story.codes, story.values = before
    story.helpers.write_text(HELPERS)
    story.input.write_text("1 2 3")
    assert story.run() == ("is 18", set())


@pytest.mark.slow
def test_another_version_of_a_package_runs_what_imports_it(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of packages that are installed, name and version count."""
    monkeypatch.setattr(code.metadata, "version", lambda _: "99.0")
    assert story.run() == ("is 18", {"Read"})


@pytest.mark.slow
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"x" * path.stat().st_size)])
def test_a_content_that_is_gone_or_damaged_is_made_again(
    story: Story, store: Path, damage: Callable[[Path], None]
) -> None:
    """From the last result that is whole; what is damaged is never used, and replaced."""
    damage(_contents(store)[0])
    assert story.run() == ("is 18", {"Show"})
    assert story.run() == ("is 18", set())
    assert ResultStore(store).verify().damaged == ()


@pytest.mark.slow
def test_records_that_this_user_has_not_written_are_not_used(story: Story, tmp_path: Path) -> None:
    """A result can be a pickle, so a record counts only with the key of this user."""
    (tmp_path / "config" / "dropflow" / "results.key").unlink()
    assert story.run() == ("is 18", ALL)


@pytest.mark.slow
def test_hosts_with_the_same_cluster_key_share_results(story: Story, tmp_path: Path) -> None:
    """What was signed with it is used by all who have it, whatever their own keys are; and never with another one."""
    config = tmp_path / "config" / "dropflow"
    made = CliRunner().invoke(commands, ["keys", "create", "--key", str(config / "cluster.key")])
    assert made.exit_code == 0
    assert story.run() == ("is 18", set())  # what this user has written before still counts
    story.values["Rms"]["offset"] = 1
    assert story.run() == ("is 19", {"Rms", "Show"})
    (config / "results.key").unlink()
    assert story.run() == ("is 19", set())
    (config / "cluster.key").chmod(0o644)  # it may be that of others
    assert story.run() == ("is 19", ALL)


@pytest.mark.slow
def test_a_deleted_result_is_put_back(story: Story) -> None:
    """It is taken from the store, though the directory of the run that computed it is gone."""
    for path in sorted((story.folder / "run1").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    assert story.run() == ("is 18", set())


@pytest.mark.slow
def test_an_explanation_says_why_an_application_ran(story: Story) -> None:
    """It names what differs from the last time, and why others always run; nothing of the first run."""

    def why(run: str) -> dict[str, tuple[str, ...]]:
        graph = load(story.folder / run / "graph.dfg")
        names = {drop: graph.templates[graph.template[drop]].name for drop in range(graph.drops)}
        return {name: reuse_lines(graph, story.folder / run, drop) for drop, name in names.items() if name in ALL}

    assert why("run1") == {"Read": (), "Rms": (), "Show": ()}
    story.values["Rms"] = {"offset": 1}
    story.run()
    found = why("run2")
    assert found["Read"][0].startswith("reused: from session run1")
    assert found["Rms"] == ("not reused: parameter `offset` is new",)
    assert found["Show"] == ("not reused: input number changed",)
    story.helpers.write_text(HELPERS.replace("3", "4"))
    story.values["Show"] = {"deterministic": False}
    story.run()
    assert why("run3")["Rms"] == ("not reused: module reuse_helpers.py: line 2 changed: return 4 * x",)
    assert why("run3")["Show"] == ("not reused: is marked as not deterministic",)


@pytest.mark.slow
def test_times_are_trusted_only_if_asked_for(story: Story) -> None:
    """Then a file from outside with the same size and time counts as the same, and is not read."""
    assert story.run(trust_times=True) == ("is 18", {"Read"})
    found = story.input.stat()
    story.input.write_text("1 2 9")
    os.utime(story.input, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert story.run(trust_times=True) == ("is 18", set())
    assert story.run() == ("is 36", ALL)


@pytest.mark.slow
def test_results_that_differ_when_computed_again_are_an_error(story: Story) -> None:
    """The error names the drop and both digests. If all are the same, no note denies that the store had them."""
    assert story.run(verify_reuse=1.0) == ("is 18", ALL)
    assert "nothing was reused" not in (story.folder / f"run{story.runs}" / "summary.json").read_text()
    hidden = story.folder / "hidden"
    hidden.write_text("1")
    story.codes["Read"] = (
        f"import pathlib\ndef Read(input):\n    return [int(pathlib.Path({str(hidden)!r}).read_text())]\n"
    )
    assert story.run() == ("is 3", ALL)
    hidden.write_text("2")
    assert story.run() == ("is 3", set())
    found = dropflow.run(story.graph(), directory=story.folder / "last", runner="inline", reuse=True, verify_reuse=1.0)
    assert not found.ok
    assert found.failures[0].code == "DF113"
    assert "Read" in found.failures[0].name
    assert "digest" in found.failures[0].text


# The graph in Python.


@dropflow.app
def numbers(count: int) -> list[int]:
    """Return the first numbers."""
    return list(range(count))


@dropflow.app
def square(x: int) -> int:
    """Return the square of a number."""
    return x * x


@dropflow.app
def is_small(x: int) -> bool:
    """Return whether a number is below ten."""
    return x < 10


@dropflow.app
def joined(values: list[int]) -> str:
    """Return the numbers as text."""
    return " ".join(map(str, values))


def _scatter(copies: int) -> Graph:
    with Graph("squares") as graph:
        with graph.each(numbers(copies), copies=copies) as number:
            squares = square(number)
        joined(squares)
    return graph


@pytest.mark.slow
def test_a_forecast_counts_applications_that_wait_for_their_inputs(tmp_path: Path) -> None:
    """Only the new copy of a scatter runs in any case; the others do if they get other inputs."""
    _scatter(3).run(directory=tmp_path / "run", runner="inline", reuse=True)
    found = local_run.foresee(_scatter(4).translate().graph, RunOptions(runner="inline", reuse=True))
    (squares,) = [one for one in found if one.node == "Square"]

    assert (squares.runs, squares.waits, squares.reused) == (1, 3, 0)
    assert squares.reasons == ("not run before", "Each may give it other inputs")


def test_a_forecast_leaves_out_a_branch_that_is_not_taken(tmp_path: Path) -> None:
    """An unchanged graph runs nothing."""
    with Graph("branch") as graph:
        small, large = graph.branch(is_small, numbers_of(3))
        square(square(large))
        square(small)
    graph.run(directory=tmp_path / "run", runner="inline", reuse=True, check=True)
    found = local_run.foresee(graph.translate().graph, RunOptions(runner="inline", reuse=True))
    assert [(one.node, one.runs, one.waits) for one in found if one.runs or one.waits] == []


@pytest.mark.slow
def test_one_more_copy_of_a_scatter_is_computed_alone(tmp_path: Path) -> None:
    """The others have the inputs that they had."""
    results = []
    for count in (3, 4):
        found = _scatter(count).run(directory=tmp_path / f"run{count}", runner="inline", reuse=True, check=True).result
        results.append((found.results[0].value(), found.computed, found.reused))
    # The numbers, the scatter, one square, and what joins them.
    assert results == [("0 1 4", 6, 0), ("0 1 4 9", 4, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["array-loop", "error-threshold", "corner-turn"])
def test_drops_end_as_they_did(tmp_path: Path, name: str) -> None:
    """Also those that a branch skips, and those that fail and are tolerated."""
    graph = Path(__file__).parents[2] / "examples" / f"{name}.graph"
    first, again = (
        dropflow.run(graph, directory=tmp_path / number, runner="inline", reuse=True, check=True) for number in "12"
    )
    assert again.states == first.states
    assert again.reused > again.computed
    for one, other in zip(first.results, again.results, strict=True):
        assert one.read() == other.read()


def _two(first: int, second: int) -> Graph:
    with Graph("two") as graph:
        joined([square(numbers_of(first)), square(numbers_of(second))])
    return graph


def test_a_directory_with_a_name_that_is_not_utf_8_is_not_stored(tmp_path: Path) -> None:
    """An application reads or writes it as without reuse: such names come with old archives."""
    given = tmp_path / "given"
    given.mkdir()
    Path(os.fsdecode(os.fsencode(given) + b"/\xe9")).touch()
    copied = "import shutil\ndef Copy(input, output):\n    shutil.copytree(input, output)\n"
    nodes = [function("Copy", copied, reads="path", encoding="path")]
    nodes += [data("given", "Directory", dirname=str(given)), data("made", "Directory", dirname="made")]
    graph = draw(tmp_path / "names.graph", nodes, "given > Copy > made")
    found = dropflow.run(graph, directory=tmp_path / "run", runner="inline", reuse=True, check=True)
    assert found.ok, found.failures


def test_a_count_of_taken_results_reads_what_was_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of the whole log, also if a line is not whole yet, or a result was computed after all."""
    path, count = tmp_path / REUSE_LOG, TakenCount(tmp_path)
    assert count.read() == 0
    path.write_bytes(b'{"drop":1}\n{"drop":2}\n{"dr')
    assert count.read() == 2 == len(taken_results(tmp_path))
    read: list[bytes] = []
    decoded = log._decoded
    monkeypatch.setattr(log, "_decoded", lambda text: (read.append(text), decoded(text))[1])
    with path.open("ab") as stream:
        stream.write(b'op":3}\n{"drop":1,"has_run":true}\n')
    assert [count.read(), count.read()] == [2, 2]
    assert read == [b'{"drop":3}\n{"drop":1,"has_run":true}\n']
    assert len(taken_results(tmp_path)) == 2


def test_a_line_that_was_cut_short_does_not_hide_the_others(tmp_path: Path) -> None:
    """A full disk takes a part of a line; the next one is behind it."""
    whole = b'{"drop":%d,"session":"s","host":"h"}\n'
    (tmp_path / REUSE_LOG).write_bytes(whole % 1 + b'{"drop":2,"ses' + whole % 3 + whole % 4)
    assert {*taken_results(tmp_path)} == {1, 4}


@dropflow.app
def numbers_of(count: int) -> int:
    """Return the number."""
    return count


@pytest.mark.slow
def test_the_order_of_inputs_counts(tmp_path: Path) -> None:
    """Two inputs that change places are the same values, and another list."""
    results = []
    for run, (first, second) in enumerate(((2, 3), (3, 2), (2, 3))):
        found = _two(first, second).run(directory=tmp_path / str(run), runner="inline", reuse=True).result
        results.append((found.results[0].value(), ran(found)))
    assert [text for text, _ in results] == ["4 9", "9 4", "4 9"]
    assert "Joined" in results[1][1]
    assert results[2][1] == set()


@pytest.mark.slow
def test_a_container_image_counts(tmp_path: Path) -> None:
    """Its name, tag and digest are in the key; how much memory it gets is not."""
    keys = []
    for values in ({"digest": "sha256:1"}, {"digest": "sha256:2"}, {"digest": "sha256:1", "n_tries": 4}):
        nodes = [app("Run", "dlg.apps.dockerapp.DockerApp", image="debian", command="date", **values), data("out")]
        graph = dropflow.translate(draw(tmp_path / "c.graph", nodes, "Run > out")).graph
        keys.append(next(key for key in node_keys(graph, CodeReader()) if key.parts))
    assert keys[0] != keys[1]
    assert keys[0] == keys[2]
    assert KeyPart("container image", "", "sha256:1") in keys[0].parts


@pytest.mark.slow
def test_a_tag_that_was_moved_counts(tmp_path: Path) -> None:
    """The session has noted which image a name means; if that is another one than before, the application runs."""
    nodes = [app("Run", "dlg.apps.dockerapp.DockerApp", image="debian", tag="12", command="date"), data("out")]
    graph = dropflow.translate(draw(tmp_path / "c.graph", nodes, "Run > out")).graph
    keys = []
    for digest in ("sha256:1", "sha256:2"):
        (tmp_path / "containers.json").write_text(json.dumps({"images": {"debian:12": f"debian@{digest}"}}))
        keys.append(next(key.parts for key in node_keys(graph, CodeReader(), tmp_path) if key.parts))
    reason = "container image sha256:1 -> sha256:2"
    assert list(differences(*keys, ResultStore(tmp_path / "store"))) == [reason]


@pytest.mark.slow
def test_another_name_of_the_same_image_does_not_count(tmp_path: Path) -> None:
    """Of an image whose digest the session has noted only this is in the key, also of commands and functions in it.

    A command that has its tag as a placeholder gives something else.
    """
    bash = "dlg.apps.bash_shell_app.BashShellApp"
    keys = []
    for name, tag in (("debian", "12"), ("debian", "12.5"), ("mirror.org/debian", "12")):
        image = f"{name}:{tag}"
        nodes = [
            app("Run", "dlg.apps.dockerapp.DockerApp", image=name, tag=tag, command="date"),
            app("Shell", bash, run_in=image, command="date"),
            function("Call", "def Call(): pass", run_in=image),
            app("Told", "dlg.apps.dockerapp.DockerApp", image=name, tag=tag, command="echo {tag}"),
        ]
        for node in nodes:
            graph = dropflow.translate(draw(tmp_path / "c.graph", [node, data("out")], f"{node['name']} > out")).graph
            (tmp_path / "containers.json").write_text(json.dumps({"images": {image: f"{name}@sha256:1"}}))
            parts = next(key.parts for key in node_keys(graph, CodeReader(), tmp_path) if key.parts)
            assert KeyPart("container image", "", "sha256:1") in parts
            keys.append(parts)
    assert keys[:3] == keys[4:7] == keys[8:11]
    assert keys[3] != keys[7]


def test_applications_that_are_no_functions_of_their_inputs_always_run(tmp_path: Path) -> None:
    """The built-in ones say so themselves, and the reason is there for people."""
    nodes = [app("Wait", SleepApp.component.dropclass, sleep_time=0), data("out")]
    graph = dropflow.translate(draw(tmp_path / "s.graph", nodes, "Wait > out")).graph
    assert "is marked as not deterministic" in {key.reason for key in node_keys(graph, CodeReader())}


def _why(story: Story) -> dict[str, tuple[int, int, int, str]]:
    graph = dropflow.translate(story.graph()).graph
    found = local_run.foresee(graph, RunOptions(runner="inline"))
    return {one.node: (one.runs, one.waits, one.reused, "; ".join(one.reasons)) for one in found}


TAKEN = (0, 0, 1, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edit", "node", "reason"),
    [
        (_edit_parameter, "Rms", "parameter `offset` is new"),
        (_edit_function, "Show", "function `Show`: line 2 changed: return f'{label}: {input}' + '.' * 5000"),
        (_edit_module, "Rms", "module reuse_helpers.py: line 2 changed: return 4 * x"),
        (_edit_input, "Read", "input input.txt changed"),
        (_edit_random, "Rms", "is marked as not deterministic"),
    ],
)
def test_the_reason_is_known_before_a_run(story: Story, edit: Callable[[Story], None], node: str, reason: str) -> None:
    """What comes before is reused, what comes after waits for other inputs, and nothing runs or changes."""
    assert _why(story) == dict.fromkeys(story.codes, TAKEN)
    edit(story)
    names = list(story.codes)
    before, after = names[: names.index(node)], names[names.index(node) + 1 :]
    waits = {name: (0, 1, 0, f"{ahead} may give it other inputs") for ahead, name in pairwise([node, *after])}
    assert _why(story) == {**dict.fromkeys(before, TAKEN), node: (1, 0, 0, reason), **waits}
    story.values["Rms"] = {"offset": 2, "deterministic": True}


@pytest.mark.slow
def test_reasons_are_told_by_the_command(story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``run --dry-run`` tells them; the same directory goes on; the store has its size, and can be emptied."""
    monkeypatch.chdir(tmp_path)
    graph = str(story.graph())

    def answer(*words: str) -> dict[str, Any]:
        done = CliRunner().invoke(commands, [*words, "--output", "json"])
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    run = ("run", graph, "--runner", "inline", "--reuse", "--keep", "kept")
    first, again = answer(*run), answer(*run)
    assert [(one["computed"], one["reused"]) for one in (first, again)] == [(0, 3), (0, 3)]
    assert list((tmp_path / "kept" / "results").iterdir())
    explained = answer("explain", "kept", "Show")
    assert any(line.startswith("reused: from session run1 on ") for line in explained["reasons"])
    _edit_function(story)
    foreseen = answer("run", str(story.graph()), "--dry-run")
    assert (foreseen["runs"], foreseen["reused"]) == (1, 2)
    (runs,) = (one for one in foreseen["nodes"] if one["runs"])
    assert 0 < runs["least"] == runs["seconds"] == runs["most"]
    assert foreseen["unmeasured"] == 0
    assert answer("cache", "info")["use"]["records"] == 6
    assert answer("cache", "verify")["use"]["damaged"] == []
    assert answer("cache", "prune")["use"]["records"] == 0
    unknown = answer("run", str(story.graph()), "--dry-run")
    assert (unknown["reused"], unknown["seconds"], unknown["unmeasured"]) == (0, 0, 3)


def test_the_price_has_the_range_of_what_was_measured() -> None:
    """What was measured is summed, core-hours too; what never was is said, and not guessed."""
    graph = _scatter(4).translate().graph
    row = next(row for row, one in enumerate(graph.templates) if one.name == "Square")
    apps = np.flatnonzero(graph.template == row)
    columns = [np.full(graph.drops, np.nan) for _ in range(3)]
    for column, seconds in zip(columns, (900.0, 1800.0, 3600.0), strict=True):
        column[apps] = seconds
    reply = ForecastReply.of(local_run.foresee(graph, RunOptions(runner="inline"), measured=MeasuredSeconds(*columns)))
    (node,) = (one for one in reply.nodes if one.node == "Square")

    assert (reply.seconds, reply.seconds_most) == (4 * 1800, 4 * 3600)
    assert reply.seconds_least == node.runs * 900
    assert (reply.core_hours, reply.core_hours_most) == (2, 4)
    assert reply.unmeasured == reply.runs + reply.waits - 4 > 0
    text = "\n".join(reply.lines())
    assert "2 h 00 min of applications" in text
    assert f"{reply.unmeasured} more of them were never measured" in text


@dropflow.app
def band(number: int, broken: int) -> int:
    """Fail for one number."""
    if number == broken:
        raise ValueError(number)
    return number


@dropflow.app(input_error_threshold=25)
def total(bands: list[int]) -> int:
    """Add up what is there."""
    return sum(bands)


@dropflow.app
def shown(value: int) -> str:
    """Return it as text."""
    return str(value)


@pytest.mark.slow
def test_a_result_without_all_data_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    """The share goes along the graph, into the journal too, and what was made without it is computed again with it."""
    found = []
    for run, broken in enumerate((3, 3, 9)):
        with Graph("bands") as graph:
            with graph.each(numbers(4), copies=4) as number:
                bands = band(number, broken)
            shown(total(bands))
        result = graph.run(directory=tmp_path / str(run), runner="inline", reuse=True).result
        summary = json.loads((tmp_path / str(run) / "summary.json").read_text())
        assert [one["fraction"] for one in summary["incomplete"]] == ([0.75] if broken == 3 else [])
        report = run_report(tmp_path / str(run)).results.results
        found.append((result.results[0].value(), [one.missing for one in report]))
    assert found == [("3", [0.25]), ("3", [0.25]), ("6", [0.0])]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "while"])
def test_an_input_that_changes_in_a_run_leaves_no_wrong_result(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for its reader nor for what follows: with the old content again, all is as of the old content."""
    source, change = tmp_path / "input.txt", tmp_path / "change"
    read = (
        f"from pathlib import Path\ndef Read(input):\n    if Path({str(change)!r}).exists():\n"
        f"        Path({str(change)!r}).rename({str(source)!r})\n    return Path(input).read_text()\n"
    )
    nodes = [
        data("source", "File", filepath=str(source)),
        function("Read", read, reads="path", encoding="utf-8"),
        data("seen"),
        function("Show", "def Show(input):\n    return f'is {input}'\n", reads="utf-8", encoding="utf-8"),
        data("text"),
    ]
    graph = draw(tmp_path / "g.graph", nodes, "source > Read > seen > Show > text")
    begin = plan.begin_with

    def change_and_begin(*given: Any) -> Any:
        begun = begin(*given)
        if change.exists() and when == "before":
            change.rename(source)
        return begun

    monkeypatch.setattr(plan, "begin_with", change_and_begin)
    results = []
    for number in range(2):
        source.write_text("old")
        if not number:
            change.write_text("new!")
        found = dropflow.run(graph, directory=tmp_path / f"run{number}", runner="inline", reuse=True, check=True)
        results.append(found.results[0].value())
    assert results == ["is new!", "is old"]


def test_a_note_says_that_results_could_not_be_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is as any other one, but the next one will compute all again."""

    def fail(*_: Any) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(ResultStore, "add", fail)
    found = _two(2, 3).run(directory=tmp_path / "run", runner="inline", reuse=True, check=True).result
    (note,) = (note for note in found.notes if "stored" in note)
    assert (
        note == "the next run computes 5 applications again, as not all could be stored: StorageError: the disk is full"
    )


@pytest.mark.slow
def test_a_log_that_cannot_be_written_fails_nothing(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk, applications run or are taken as before, and only their explanations are missing."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dropflow.reuse.log.private_opener", full)
    _edit_parameter(story)

    assert story.run()[0] == "is 19"
    assert story.run()[0] == "is 19"
