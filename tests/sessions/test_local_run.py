"""Running one graph on this machine: its directory, options, output and results."""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import click
import msgspec
import numpy as np
import pytest

from dropflow.apps.app_interface import App, Context
from dropflow.cli.common_options import Duration
from dropflow.cli.main import load_command
from dropflow.clock import SystemClock
from dropflow.data.repository import LocalRepository
from dropflow.errors import BadFileError, BadGraphError, BadParameterError, ConflictError, StorageError, UsageError
from dropflow.execution.content_location import Handle
from dropflow.execution.journal import replay
from dropflow.execution.statistics import SessionResult
from dropflow.functions import run
from dropflow.graph import codec
from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import digest, dump, load, save
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.session_options import RunKeywords, RunOptions, SubmitOptions, meta_of
from dropflow.sessions import local_run
from dropflow.states import SessionState
from tests.drawn_graphs import data, draw, function
from tests.graph.shapes import scatter
from tests.virtual_clock import VirtualClock

MEMORY = "dlg.data.drops.memory.InMemoryDROP"


def greeting(component: str = "dlg.apps.simple.HelloWorldApp") -> PhysicalGraph:
    """Return a graph with an application that writes a greeting to memory."""
    builder = GraphBuilder("greeting")
    arguments = (Argument(name="greet", value="you", parameter_type="ApplicationArgument"),)
    builder.app("greet", component=component, category="DALiuGEApp", arguments=arguments)
    builder.data("greeting", component=MEMORY, category="Memory")
    builder.connect("greet", "greeting")
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["inline", "threads", "processes", "dask"])
def test_a_run_leaves_the_documented_files(tmp_path: Path, runner: str) -> None:
    """The session directory has graph, journal, summary and result, and no temporary file or empty log."""
    graph = greeting()
    result = local_run.run(graph, tmp_path, RunOptions(runner=runner, workers=2))

    assert result.status is SessionState.FINISHED
    assert digest(load(tmp_path / "graph.dfg")) == digest(graph)
    written = msgspec.json.decode((tmp_path / "summary.json").read_bytes())
    assert written == msgspec.json.decode(msgspec.json.encode(local_run.summary(result)))
    assert [path.read_text() for path in (tmp_path / "results").iterdir()] == ["Hello you"]
    assert not (tmp_path / "tmp").exists() or list((tmp_path / "tmp").iterdir()) == []
    assert list((tmp_path / "logs").iterdir()) == []
    assert replay(graph, tmp_path / "journal.dfj").core.status is SessionState.FINISHED


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["processes", "dask"])
def test_a_parameter_beyond_64_bits_reaches_the_workers(tmp_path: Path, runner: str) -> None:
    """MessagePack has no such integers."""
    graph = greeting()
    first = graph.templates[0]
    wide = msgspec.structs.replace(first, arguments=(*first.arguments, Argument(name="seed", value=2**70)))
    result = local_run.run(
        replace(graph, templates=(wide, *graph.templates[1:])), tmp_path, RunOptions(runner=runner, workers=1)
    )

    assert result.status is SessionState.FINISHED


def test_an_unusable_graph_is_refused_before_files_are_written(tmp_path: Path) -> None:
    """An unknown class is refused with its node and name, and no file is written."""
    with pytest.raises(BadGraphError, match=r"no\.Such") as caught:
        local_run.run(greeting("no.Such"), tmp_path)

    assert [found.code for found in caught.value.problems] == ["DF103"]  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []


class CheckedApp(App):
    """An application that notes when it is checked."""

    checks: ClassVar[list[object]] = []

    def check(self) -> None:
        """Note it."""
        self.checks.append(self)

    def run(self, context: Context) -> None:
        """Do nothing."""


def test_a_graph_is_accepted_before_its_directory_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run checks each component once before an earlier run is replaced; one whose graph is refused replaces none."""
    monkeypatch.setattr(CheckedApp, "checks", [])
    kept = tmp_path / "run"
    run(greeting("tests.sessions.test_local_run.CheckedApp"), directory=kept, runner="inline")
    assert len(CheckedApp.checks) == 1

    with pytest.raises(BadParameterError, match="warp"):
        run(greeting(), directory=kept, overwrite=True, runner="warp")
    assert load(kept / "graph.dfg").templates[0].component == "tests.sessions.test_local_run.CheckedApp"


def test_an_unknown_runner_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    """An unknown runner is refused; the hint has the known ones."""
    with pytest.raises(BadParameterError, match="warp") as caught:
        local_run.run(greeting(), tmp_path, RunOptions(runner="warp"))

    assert "processes" in caught.value.hint


def test_runs_of_the_same_second_have_different_directories(tmp_path: Path) -> None:
    """A directory is named after the graph and the UTC time, with a number if that exists."""
    clock = VirtualClock()
    names = [local_run.new_directory(greeting(), root=tmp_path, clock=clock).name for _ in range(3)]

    assert names[1:] == [f"{names[0]}-2", f"{names[0]}-3"]
    assert names[0].startswith("greeting-")


def test_only_files_of_a_session_are_removed(tmp_path: Path) -> None:
    """A directory with other files is refused and unchanged."""
    local_run.run(greeting(), tmp_path, RunOptions(runner="inline"))
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ConflictError, match=r"thesis\.tex"):
        local_run.prepare_directory(tmp_path)

    assert (tmp_path / "graph.dfg").exists()


def test_the_results_of_a_run_are_not_replaced_by_accident(tmp_path: Path) -> None:
    """A directory with a run that FINISHED is refused and unchanged, unless it is to be overwritten."""
    local_run.run(greeting(), tmp_path, RunOptions(runner="inline"))
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
    local_run.run(greeting(), tmp_path, RunOptions(runner="inline"))
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


def test_a_run_that_was_killed_while_it_removed_its_parts_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had renamed to remove it is part of the session, and goes with it."""
    remove = shutil.rmtree

    def killed(path: Path, **options: bool) -> None:
        if tmp_path in Path(path).parents:
            raise KeyboardInterrupt
        remove(path, **options)  # what other killed tests left in shared memory

    with monkeypatch.context() as patch:
        patch.setattr("dropflow.data.workspace.shutil.rmtree", killed)
        with suppress(KeyboardInterrupt):
            local_run.run(greeting(), tmp_path, RunOptions(runner="inline"))
    assert [path.name for path in tmp_path.glob(".removed-*")]
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


@pytest.mark.parametrize(
    ("name", "problem"), [(os.fsdecode(b"\xe9t\xe9"), "the path is not UTF-8"), ("d" * 300, "File name too long")]
)
def test_a_path_that_a_session_cannot_have_is_refused(name: str, problem: str, tmp_path: Path) -> None:
    """Before anything runs: records and messages of a session contain its path."""
    with pytest.raises(StorageError, match=problem):
        local_run.prepare_directory(tmp_path / name)
    with pytest.raises(StorageError, match=problem):
        local_run.new_directory(greeting(), root=tmp_path / name)


def test_a_file_in_place_of_the_directory_is_reported(tmp_path: Path) -> None:
    """If there is a file in place of the directory, the error has its path."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(UsageError, match="a file, not a directory") as caught:
        local_run.prepare_directory(tmp_path / "taken")

    assert caught.value.where.endswith("taken")


# The records of options of a session.


def test_keywords_of_functions_are_the_fields_of_the_record() -> None:
    """A field that is added to the record is a keyword of `dropflow.run`, too, of the same type."""
    assert get_type_hints(RunKeywords) == get_type_hints(RunOptions)


def test_each_option_has_a_flag_with_its_bounds_and_default() -> None:
    """`run` has those of a run on this machine, and `submit` those of a session of a manager."""
    records: tuple[tuple[str, type[msgspec.Struct]], ...] = (("run", RunOptions), ("submit", SubmitOptions))
    for command, record in records:
        known: dict[str, Any] = {option.name or "": option for option in load_command(command).params}
        for name, field in meta_of(record).items():
            option = known[name]
            assert (option.help, option.default) == (field.meta.description, field.default), name
            if isinstance(option.type, click.IntRange | click.FloatRange):
                assert (option.type.min, option.type.max) == (field.meta.ge, field.meta.le), name


def test_no_option_takes_nan_for_a_number() -> None:
    """NaN compares with no bound: a peer that is silent for this long would never be lost."""
    checked = 0
    for command in ("run", "submit", "watch", "node", "island", "up", "doctor"):
        for option in load_command(command).params:
            if isinstance(option.type, click.FloatRange | Duration):
                checked += 1
                with pytest.raises(click.BadParameter, match=r"is not a (number|duration)"):
                    option.type.convert("nan", option, None)
    assert checked > 10


def test_each_option_of_a_submission_has_a_title_for_the_form() -> None:
    """All that have a flag, so that the page has no option less than the command."""
    assert [name for name, field in meta_of(SubmitOptions).items() if not field.meta.title] == []


# Output of compiled libraries to descriptor 1 is not mixed with the output of a command.


_NATIVE = """
import os, sys
from dropflow.standard_output import reserve
reserve()
os.write(1, b"from a library")
os.system("echo from a program")
sys.stdout.write("the answer")
"""
_FOREIGN = """
import sys
from dropflow.standard_output import reserve
reserve()
sys.stdout.write("\u00e9t\u00e9 \u65e5")
"""
_PARTITIONED = """
import sys
from pathlib import Path
from dropflow.graph.codec import load
from translator.plan.registry import partition
from translator.options import PartitionOptions
print("before")
graph = partition(load(Path(sys.argv[1])), PartitionOptions(algorithm="metis", parts=7))
print("parts", graph.parts)
"""


def _lopsided() -> GraphBuilder:
    """Return a graph that METIS cannot bisect into 7 parts, because nearly all load is in two drops."""
    drawing = GraphBuilder("lopsided")
    for number, weight in enumerate([1e3, 1e3, 1e1, 1e1, 1.0, 1.0, 1.0, 1e1, 1e4, 1e3]):
        drawing.app(f"a{number}", weight=weight).data(f"d{number}").connect(f"a{number}", f"d{number}")
    return drawing


def _python(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=60)


def test_only_the_output_of_the_command_is_on_standard_output() -> None:
    """Native code and programs that inherit descriptor 1 write to standard error."""
    done = _python("-c", _NATIVE)

    assert done.stdout == "the answer"
    assert sorted(done.stderr.replace("library", "library\n").split("\n")) == ["", "from a library", "from a program"]


def test_what_the_encoding_of_the_terminal_lacks_is_written_as_escapes() -> None:
    """A name that cannot be shown does not end a command."""
    command = [sys.executable, "-c", _FOREIGN]
    done = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "PYTHONIOENCODING": "latin-1"})

    assert done.stdout == b"\xe9t\xe9 \\u65e5"


@pytest.mark.slow
def test_a_graph_that_metis_cannot_bisect_gives_one_json_object(tmp_path: Path) -> None:
    """``partition --output json`` prints one object, although METIS prints too."""
    save(_lopsided().build(), tmp_path / "g.dfg")
    done = _python("-m", "dropflow", "partition", str(tmp_path / "g.dfg"), "-n", "7", "--output", "json")

    assert json.loads(done.stdout)["parts"] == 7
    assert "Cannot bisect" in done.stderr


@pytest.mark.slow
def test_a_program_that_partitions_has_its_standard_output_to_itself(tmp_path: Path) -> None:
    """Also without the command, what METIS prints goes to standard error, and the program's own lines stay in order."""
    save(_lopsided().build(), tmp_path / "g.dfg")
    done = _python("-c", _PARTITIONED, str(tmp_path / "g.dfg"))

    assert done.stdout == "before\nparts 7\n"
    assert "Cannot bisect" in done.stderr


# FINISHED means that every leaf is kept: runs whose disk is full, or whose directory is removed.


FILE = "dlg.data.drops.file.FileDROP"


def _writer(code: str, component: str = MEMORY, **fields: str) -> PhysicalGraph:
    """Return a function and the data drop that it writes."""
    drawing = GraphBuilder("keeping")
    drawing.app(
        "f",
        component="dlg.apps.pyfunc.PyFuncApp",
        category="PyFuncApp",
        arguments=(Argument(name="func_name", value="f"), Argument(name="func_code", value=code)),
    )
    drawing.data("leaf", component=component, arguments=tuple(Argument(name=k, value=v) for k, v in fields.items()))
    return drawing.connect("f", "leaf", source_port="out").build()


def _run(graph: PhysicalGraph, directory: Path, runner: str = "inline") -> SessionResult:
    return local_run.run(graph, directory, RunOptions(runner=runner, workers=1))


@pytest.mark.slow
def test_a_run_that_cannot_keep_a_leaf_fails(tmp_path: Path) -> None:
    """If a leaf cannot be kept, the command ends with 1 and names the drop and the reason.

    No file may be larger than 40,000 bytes here, and the leaf has 60,000, which fit into a message.
    """
    graph = draw(tmp_path / "g.graph", [function("F", "def F():\n    return 'x' * 60000"), data("leaf")], "F > leaf")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "dropflow",
            "run",
            str(graph),
            "--runner",
            "inline",
            "--keep",
            "run",
            "--output",
            "json",
        ],
        cwd=tmp_path,
        # Python 3.11 does not see that a limit cuts the file of a compiled module short, and cannot read it again.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000)),
        check=False,
    )
    answer, journal = json.loads(done.stdout), tmp_path / "run" / "journal.dfj"

    assert (done.returncode, answer["ok"], answer["status"]) == (1, False, "FAILED")
    assert "cannot write the result" in answer["failures"][0]["text"]
    assert answer["failures"][0]["name"] == "F"
    assert list((tmp_path / "run" / "results").iterdir()) == []
    assert "cannot write the result" in replay(load(tmp_path / "run" / "graph.dfg"), journal).failures[0].text


@pytest.mark.slow
def test_a_full_disk_leaves_room_for_the_reason(small_disk: Path) -> None:
    """Partial content is removed, so that journal, log and summary have room for the reason of the failure."""
    code = "def f(x=None):\n    print('before')\n    return bytes(5_000_000)"
    graph = _writer(code)
    result = _run(graph, small_disk / "run", "processes")
    (failure,) = result.failures

    assert result.status is SessionState.FAILED
    assert "No space left on device" in failure.text
    assert json.loads((small_disk / "run" / "summary.json").read_text())["failures"][0]["text"] == failure.text
    assert replay(graph, small_disk / "run" / "journal.dfj").core.status is SessionState.FAILED
    assert "No space left on device" in Path(failure.log).read_text()
    assert result.notes == ()
    assert not (small_disk / "run" / "tmp").exists()


def test_a_result_that_fills_the_disk_leaves_no_file(small_disk: Path) -> None:
    """If a content in shared memory does not fit on the disk, its producer fails and no partial file is left."""
    repository = LocalRepository(small_disk / "run", "s", SystemClock())
    graph = _writer("def f(): pass")
    part = repository.workspace.shared / "part"
    part.write_bytes(bytes(5_000_000))
    handle = Handle(kind="shm", location=str(part), size=5_000_000)
    with pytest.raises(StorageError, match=r"cannot write the result .* No space left"):
        repository.keep_result(1, "leaf", graph.templates[1], handle)

    assert list(repository.workspace.results.iterdir()) == []
    assert [path.name for path in repository.workspace.tmp.iterdir()] == ["shm"]
    assert list(repository.workspace.shared.iterdir()) == []
    repository.close()


@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize("component", [MEMORY, FILE])
def test_a_run_whose_directory_is_removed_fails(tmp_path: Path, component: str, *, comes_back: bool) -> None:
    """A session whose directory is removed or replaced while it runs is not FINISHED."""
    directory = tmp_path / "run"
    code = f"def f():\n    import shutil\n    shutil.rmtree({str(directory)!r})\n"
    if comes_back:
        code += "    import os\n"
        code += "".join(f"    os.makedirs({str(directory / name)!r})\n" for name in ("tmp", "results"))
    result = _run(_writer(code + "    return 'text'", component), directory)

    assert result.status is SessionState.FAILED
    assert result.failures


def test_a_run_whose_results_are_replaced_after_the_last_drop_fails(tmp_path: Path) -> None:
    """The session fails and names the directory, even if it was replaced after the last write."""
    directory = tmp_path / "run"
    drawing = GraphBuilder("keeping").data("leaf", component=MEMORY, arguments=(Argument(name="pydata", value="1"),))
    away = f"def f(x):\n    import shutil\n    shutil.rmtree({str(directory / 'results')!r})"
    fields = (Argument(name="func_name", value="f"), Argument(name="func_code", value=away))
    drawing.app("f", component="dlg.apps.pyfunc.PyFuncApp", arguments=fields)
    result = _run(drawing.data("in").connect("in", "f", target_port="x").build(), directory)

    assert result.status is SessionState.FAILED
    assert [failure.text for failure in result.failures] == [
        f"the directory {directory}/results was removed or replaced while the session ran: the files in it are lost"
    ]


def test_a_summary_that_cannot_be_written_is_a_note(tmp_path: Path) -> None:
    """If the summary cannot be written, the run is FINISHED and a note says so: the results are kept."""
    directory = tmp_path / "run"
    in_the_way = f"def f():\n    import os\n    os.mkdir({str(directory / 'summary.json')!r})\n    return 'text'"
    result = _run(_writer(in_the_way), directory)

    assert result.status is SessionState.FINISHED
    assert ["summary.json" in note for note in result.notes] == [True]
    assert len(list((directory / "results").iterdir())) == 1


def test_committed_outputs_of_a_failed_attempt_are_removed(tmp_path: Path) -> None:
    """If one output of an attempt cannot be stored, the outputs that it had committed are removed."""
    drawing = GraphBuilder("keeping")
    code = "def f():\n    return 'text'"
    fields = (Argument(name="func_name", value="f"), Argument(name="func_code", value=code))
    drawing.app("f", component="dlg.apps.pyfunc.PyFuncApp", category="PyFuncApp", arguments=fields)
    drawing.data("good", component=FILE, arguments=(Argument(name="filepath", value="good.txt"),))
    drawing.data("bad", component=FILE, arguments=(Argument(name="filepath", value="good.txt/bad.txt"),))
    drawing.connect("f", "good", source_port="out").connect("f", "bad", source_port="out")
    result = _run(drawing.build(), tmp_path / "run")

    assert result.status is SessionState.FAILED
    assert list((tmp_path / "run" / "files").iterdir()) == []


SMALL = b"".join(dump(scatter(2)))


@pytest.mark.parametrize("mmap", [False, True])
def test_a_file_holds_the_whole_graph(tmp_path: Path, *, mmap: bool) -> None:
    """Names, places and text ids are read back, whether columns are read or mapped."""
    part = np.array([0, 1, 1, 0], dtype=np.int32)
    graph = replace(scatter(1), oids=("a", "b", "x y", "c"), part=part, places=("n1", "n2"), meta={"islands": '["i"]'})
    codec.save(graph, tmp_path / "graph.dfg")

    found = codec.load(tmp_path / "graph.dfg", mmap=mmap)
    assert digest(found) == digest(graph)
    assert (found.name, found.places, found.oids, found.meta) == (graph.name, graph.places, graph.oids, graph.meta)


def test_a_file_is_the_bytes_of_a_dump(tmp_path: Path) -> None:
    """The bytes of a file are the buffers of `dump`, one after the other."""
    codec.save(scatter(2), tmp_path / "graph.dfg")

    assert (tmp_path / "graph.dfg").read_bytes() == SMALL


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: path.mkdir(), "not a regular file"),
        (lambda path: path.parent, "No such file"),
        (lambda path: path.write_bytes(b""), "empty|not a .dfg"),
        (lambda path: path.write_text("[]"), "not a .dfg file"),
        (lambda path: path.write_bytes(SMALL[:-1]), "cut off"),
    ],
    ids=["directory", "missing", "empty", "foreign", "cut off"],
)
def test_files_that_are_not_graphs_are_refused(
    tmp_path: Path, *, mmap: bool, make: Callable[[Path], object], text: str
) -> None:
    """A directory, a missing, empty, foreign or truncated file raises one error with its path."""
    path = tmp_path / "graph.dfg"
    make(path)
    with pytest.raises(BadFileError, match=text) as caught:
        codec.load(path, mmap=mmap)

    assert caught.value.where == str(path)


def test_saving_replaces_a_file_as_a_whole(tmp_path: Path) -> None:
    """If a graph cannot be written, the old file stays and no partial file is left."""
    path = tmp_path / "graph.dfg"
    codec.save(scatter(2), path)
    with pytest.raises(BadGraphError, match="half of a surrogate pair"):
        codec.save(GraphBuilder().data("\ud800").build(), path)
    with pytest.raises(StorageError, match="cannot be written"):
        codec.save(scatter(3), tmp_path / "missing" / "graph.dfg")

    assert codec.load(path).drops == 7
    assert [found.name for found in tmp_path.iterdir()] == ["graph.dfg"]
    codec.save(scatter(3), path)
    assert codec.load(path).drops == 10
