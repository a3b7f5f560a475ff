"""Attempts on the real executor: inputs, outputs and failures."""

import io
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from dropflow.apps.app_interface import Context
from dropflow.data.read import read
from dropflow.data.workspace import discard_directory, remove_directory, remove_rest
from dropflow.errors import AppError, InputLostError, StorageError, UsageError
from dropflow.execution.content_location import Handle
from dropflow.execution.tasks import AttemptResult, Input, Task
from dropflow.graph.templates import Argument
from dropflow.states import DropState
from tests.runners.executor_bench import APP, IN, MEMORY, OUT, Bench, FunctionApp

FILE = "dlg.data.drops.file.FileDROP"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """An application between two data drops."""
    found = Bench(tmp_path / "session")
    yield found
    found.close()
    found.repository.close()


def _text(body: str) -> Handle:
    return Handle(body=body.encode(), size=len(body.encode()), text=True)


def _content(result: AttemptResult) -> bytes:
    assert result.failure is None, result.failure
    return read(result.handles[200])


def test_values_are_decoded_and_encoded_by_the_ports(bench: Bench) -> None:
    """An application reads its input's value and writes its output's, by the encodings of the ports."""
    fields = (
        Argument(name="in", encoding="utf-8", usage="InputPort"),
        Argument(name="out", encoding="json", usage="OutputPort"),
    )
    result = bench.run(lambda ctx: ctx.outputs[0].put([ctx.inputs[0].value()]), given=_text("hi"), fields=fields)

    assert _content(result) == b'["hi"]'


def test_a_context_has_the_identity_of_the_attempt(bench: Bench) -> None:
    """Ids, names, position, attempt, session, ports and directory are what the task says."""
    seen: list[Any] = []

    def look(ctx: Context) -> None:
        data, out = ctx.inputs[0], ctx.outputs[0]
        seen.extend((ctx.oid, ctx.name, ctx.index, ctx.attempt, ctx.session, ctx.directory))
        seen.extend((data.port, data.name, data.oid, data.size, data.ok, data.is_directory))
        seen.extend((out.port, out.name, out.oid, out.is_directory, ctx.input("in") is data, ctx.input("no")))

    bench.run(look, given=_text("hi"))

    assert seen == [
        *("g_a_0", "the app", (0,), 1, "trial", bench.directory / "files"),
        *("in", "the input", "g_i_0", 2, True, False),
        *("out", "the output", "g_o_0", False, True, None),
    ]


def test_outputs_that_are_not_written_are_empty(bench: Bench) -> None:
    """An application that writes nothing still completes its outputs: memory without content, files as empty files."""
    memory = bench.run(lambda _ctx: None)
    file = bench.run(lambda _ctx: None, target=FILE)

    assert memory.handles[200].size == 0
    assert Path(file.handles[200].location).read_bytes() == b""


def test_skipped_outputs_have_no_content(bench: Bench) -> None:
    """A skipped output has no content, even if something was written to it."""

    def skip(ctx: Context) -> None:
        ctx.outputs[0].write(b"too late")
        ctx.outputs[0].skip()

    result = bench.run(skip, target=FILE)

    assert (result.handles, result.skipped) == ({}, (200,))
    assert not list((bench.directory / "tmp").glob("0-1-*"))


def test_streams_and_writes_append_in_the_order_of_calls(bench: Bench) -> None:
    """Bytes, text, streams and programs append in the order of the calls; open streams are closed at the end."""

    def write(ctx: Context) -> None:
        out = ctx.outputs[0]
        out.write("a")
        stream = out.open()
        stream.write(b"b")
        stream.flush()
        with out.path.open("ab") as program:
            program.write(b"c")
        stream.write(b"d")

    for target in (MEMORY, FILE):
        assert _content(bench.run(write, target=target)) == b"abcd"


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_inputs_can_be_read_as_bytes_stream_or_file(bench: Bench, size: int) -> None:
    """An input in a handle or in shared memory can be read as bytes, as a stream and as a file."""
    part = bench.run(lambda ctx: ctx.outputs[0].write(b"x" * size) and None).handles[200]
    seen: list[bytes] = []

    def look(ctx: Context) -> None:
        data = ctx.inputs[0]
        with data.open() as stream:
            seen.extend((data.read(), stream.read(), data.path.read_bytes()))
        seen.append(Path(data.url.removeprefix("file://")).read_bytes())

    bench.run(look, given=part)

    assert seen == [b"x" * size] * 4


def test_temporary_input_files_are_removed_after_the_attempt(bench: Bench) -> None:
    """The temporary file of a content in memory is removed when the attempt is over."""
    paths: list[Path] = []
    bench.run(lambda ctx: paths.append(ctx.inputs[0].path), given=_text("hi"))

    assert not paths[0].parent.exists()


@pytest.mark.parametrize("kind", ["path", "long"])
def test_a_copy_for_the_application_to_change_is_in_its_temporary_directory(
    bench: Bench, tmp_path: Path, kind: str
) -> None:
    """Whatever the id of the drop is, which may be an absolute path, or longer than a name may be."""
    oid = str(tmp_path / "elsewhere") if kind == "path" else "x" * 300
    fields = (Argument(name="io", encoding="path", usage="InputOutput"),)
    executor = bench.build(fields=fields, in_port="io")
    paths: list[Path] = []
    executor._apps[APP] = FunctionApp(lambda ctx: paths.append(ctx.inputs[0].path))
    given = Input(100, oid, IN, 0, DropState.COMPLETED, _text("hi"))
    assert executor.execute(msgspec.structs.replace(bench.task(), inputs=(given,))).failure is None

    assert paths[0].is_relative_to(bench.directory)
    assert not paths[0].parent.exists()


def test_reading_a_failed_input_is_an_error(bench: Bench) -> None:
    """Reading an input whose drop failed raises an error; an application can check it first."""
    result = bench.run(lambda ctx: ctx.inputs[0].read() and None, state=DropState.ERROR)

    assert result.failure is not None
    assert "input 'the input' (g_i_0) has no content: it is ERROR" in result.failure.text


def test_failed_attempts_leave_no_contents(bench: Bench) -> None:
    """The output of a failed attempt is removed, and its result has no contents."""

    def fail(ctx: Context) -> None:
        ctx.outputs[0].write(b"x" * 1_000_000)
        raise ValueError("no")

    for target in (MEMORY, FILE):
        result = bench.run(fail, target=target)
        assert result.handles == {}
    assert not [path for path in (bench.directory / "tmp").iterdir() if path.name != "shm"]
    assert not list((bench.directory / "tmp" / "shm").iterdir())


def test_a_failure_has_the_exception_and_its_traceback(bench: Bench) -> None:
    """The failure has the exception, and a traceback that begins in the application's own code; the log has it too."""

    def helper() -> None:
        raise KeyError("missing")

    result = bench.run(lambda _ctx: helper())

    assert result.failure is not None
    assert (result.failure.kind, result.failure.text) == ("KeyError", "KeyError: 'missing'")
    assert "in helper" in result.failure.detail
    assert "dropflow/runners/executor.py" not in result.failure.detail
    assert "KeyError: 'missing'" in bench.log()


def _import_nothing(_ctx: Context) -> None:
    import surely_not_installed.really  # noqa: F401, PLC0415 # type: ignore[import-not-found]


@pytest.mark.parametrize(
    ("function", "kind", "hint"),
    [
        (_import_nothing, "ModuleNotFoundError", "install 'surely_not_installed' in the environment"),
        (lambda _ctx: open("nowhere.txt").close(), "FileNotFoundError", "files directory"),  # noqa: PTH123
        (lambda _ctx: sys.exit(3), "SystemExit", "return from the function"),
    ],
)
def test_common_exceptions_have_hints(bench: Bench, function: Callable[[Context], None], kind: str, hint: str) -> None:
    """Failures by common exceptions have a hint."""
    failure = bench.run(function).failure

    assert failure is not None
    assert failure.kind == kind
    assert hint in failure.hint


def test_dropflow_errors_keep_code_text_and_hint(bench: Bench) -> None:
    """A DropflowError keeps its code, text and hint; without a traceback, the detail is the end of the log."""

    def fail(ctx: Context) -> None:
        ctx.log("about to fail")
        raise StorageError("the disk is full", hint="make room")

    failure = bench.run(fail).failure

    assert failure is not None
    assert (failure.code, failure.text, failure.hint, failure.retryable) == (
        "DF201",
        "the disk is full",
        "make room",
        True,
    )
    assert "about to fail" in failure.detail


def test_ctrl_c_is_not_a_failure_of_the_application(bench: Bench) -> None:
    """In the main thread it is raised on, and outputs are removed; in other threads it is a failure."""

    def interrupted(ctx: Context) -> None:
        ctx.outputs[0].write(b"x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        bench.run(interrupted, target=FILE)
    results: list[AttemptResult] = []
    thread = threading.Thread(target=lambda: results.append(bench.run(interrupted)))
    thread.start()
    thread.join()

    assert results[0].failure is not None
    assert not list((bench.directory / "tmp").glob("0-1-*"))


def test_an_abort_wakes_a_waiting_application(bench: Bench) -> None:
    """An application that waits is woken by an abort from another thread."""
    waiting = threading.Event()

    def wait(ctx: Context) -> None:
        waiting.set()
        ctx.wait(1000)

    executor = bench.build()
    stopper = threading.Thread(target=lambda: (waiting.wait(), executor.abort(0, 1)))
    stopper.start()
    result = bench.run(wait)
    stopper.join()

    assert result.failure is not None
    assert result.failure.kind == "Interrupted"


def test_reading_and_writing_end_after_an_abort(bench: Bench) -> None:
    """Reads and writes check for the abort, so that long copies end."""
    executor = bench.build()

    def copy(ctx: Context) -> None:
        executor.abort(0, 1)
        ctx.outputs[0].write(b"x")

    failure = bench.run(copy).failure

    assert failure is not None
    assert failure.kind == "Interrupted"


def test_a_second_attempt_continues_the_log(bench: Bench) -> None:
    """The log has the output of all attempts, separated by headings."""
    bench.run(lambda _ctx: print("first"))  # noqa: T201 - what is tested
    bench.run(lambda _ctx: print("second"), attempt=2)  # noqa: T201 - what is tested

    assert [line.split(" ", 1)[-1] for line in bench.log().splitlines()] == ["first", "INFO attempt 2", "second"]


@pytest.mark.parametrize(
    ("value", "name"), [("hello.txt", "hello.txt"), ("", "g_o_0"), ("hello_{dlg}.txt", "hello_dropflow.txt")]
)
def test_a_path_port_field_names_the_output_file(bench: Bench, value: str, name: str) -> None:
    """The field of a port with path encoding is the name of a file that has no other name."""
    fields = (Argument(name="out", value=value, encoding="path", usage="OutputPort"),)
    result = bench.run(lambda ctx: ctx.outputs[0].path.touch(), target=FILE, fields=fields)

    assert result.handles[200].final == str(bench.directory / "files" / name)
    assert Path(result.handles[200].location).name == name


def test_an_input_at_a_path_port_names_the_output_file(bench: Bench) -> None:
    """An input at the port of that name overrides the field."""
    fields = (Argument(name="filepath", value="field.txt", encoding="path", usage="InputOutput"),)
    result = bench.run(
        lambda ctx: ctx.outputs[0].path.touch(),
        given=_text("input.txt"),
        target=FILE,
        fields=fields,
        in_port="filepath",
        out_port="filepath",
    )

    assert result.handles[200].final == str(bench.directory / "files/input.txt")


def test_a_returned_path_becomes_the_content(bench: Bench, tmp_path: Path) -> None:
    """If an application returns the path of a file, the content of that file becomes the content of the drop."""
    (tmp_path / "made").write_bytes(b"content")
    result = bench.run(lambda ctx: ctx.outputs[0].put(str(tmp_path / "made"), "path"), target=FILE)
    failure = bench.run(lambda ctx: ctx.outputs[0].put("/no/where", "path"), target=FILE).failure

    assert _content(result) == b"content"
    assert failure is not None
    assert "/no/where" in failure.text


def test_json_drops_are_written_and_read_as_json(bench: Bench) -> None:
    """A JSON drop is written and read as JSON, even if EAGLE set another encoding at the port."""
    target = "dlg.data.drops.json_drop.JsonDROP"
    result = bench.run(lambda ctx: ctx.outputs[0].put({"a": [1]}), target=target)
    seen: list[Any] = []
    bench.run(lambda ctx: seen.append(ctx.inputs[0].value("pickle")), given=result.handles[200], source=target)

    assert _content(result) == b'{"a": [1]}'
    assert seen == [{"a": [1]}]


def test_errors_of_encodings_name_the_port(bench: Bench) -> None:
    """A value that does not fit gives an error with the port of the output."""
    failure = bench.run(lambda ctx: ctx.outputs[0].put(5, "raw")).failure

    assert failure is not None
    assert failure.text.startswith("output 'out': encoding 'raw' cannot hold int 5")


def test_root_drops_get_their_initial_content(bench: Bench) -> None:
    """A data drop without producers is a task too: problems become its failure, warnings go to its log."""
    executor = bench.build(target=FILE, target_fields=(Argument(name="filepath", value="/no/where"),))
    failed = executor.execute(Task(5, 1, OUT, "g_o_0", ()))
    made = bench.build(target=FILE, target_fields=(Argument(name="filepath", value="new.txt"),)).execute(
        Task(6, 1, OUT, "g_o_1", ())
    )

    assert failed.failure is not None
    assert "/no/where does not exist" in failed.failure.text
    assert (made.failure, made.handles[6].size) == (None, 0)
    assert "an empty file is made" in bench.log("g_o_1")


def test_an_unknown_class_is_a_failure(bench: Bench) -> None:
    """A task with an unknown application fails with the name of the class; it never raises."""
    result = bench.build().execute(bench.task())

    assert result.failure is not None
    assert result.failure.hint


def test_large_arrays_are_mapped(bench: Bench) -> None:
    """An array that went through shared memory is the array that was written."""
    array = np.arange(200_000.0)
    part = bench.run(lambda ctx: ctx.outputs[0].put(array)).handles[200]
    seen: list[Any] = []
    bench.run(lambda ctx: seen.append(ctx.inputs[0].value()), given=part)

    assert part.kind == "shm"
    assert (seen[0] == array).all()


def test_a_program_stream_can_be_a_zip(bench: Bench) -> None:
    """Output streams serve libraries that write to file objects."""
    import zipfile  # noqa: PLC0415 - only here

    def write(ctx: Context) -> None:
        with ctx.outputs[0].open() as stream, zipfile.ZipFile(stream, "w") as archive:
            archive.writestr("a", "hello")

    with zipfile.ZipFile(io.BytesIO(_content(bench.run(write)))) as archive:
        assert archive.read("a") == b"hello"


def test_reading_a_directory_as_bytes_is_reported(bench: Bench, tmp_path: Path) -> None:
    """The error says that a directory has a path, but no bytes."""
    seen: list[Any] = []

    def look(ctx: Context) -> None:
        data = ctx.inputs[0]
        seen.extend((data.is_directory, data.path, data.value("path")))
        with pytest.raises(UsageError, match="is a directory"):
            data.read()

    result = bench.run(look, given=Handle(kind="directory", location=str(tmp_path)))

    assert result.failure is None
    assert seen == [True, tmp_path, os.fspath(tmp_path)]


def test_a_failure_includes_the_cause_of_our_error(bench: Bench) -> None:
    """If another exception caused a DropflowError, the failure has the name and traceback of that exception."""

    def fail(_ctx: Context) -> None:
        try:
            int("x")
        except ValueError as problem:
            raise AppError("the function failed") from problem

    failure = bench.run(fail).failure

    assert failure is not None
    assert failure.kind == "ValueError"
    assert "int(" in failure.detail


def test_commands_run_in_the_session(bench: Bench) -> None:
    """A command sees the drop's id, its session and the caller's variables, runs in files/, and prints into the log."""
    seen: list[int] = []
    command = 'echo "$DLG_UID $DLG_SESSION_ID $EXTRA $(pwd)"; test -n "$DLG_ROOT" && exit 4'
    bench.run(lambda ctx: seen.append(ctx.command(command, {"EXTRA": "more"})))

    assert seen == [4]
    assert bench.log() == f"g_a_0 trial more {bench.directory / 'files'}\n"
    assert "EXTRA" not in os.environ


def test_commands_find_programs_beside_this_python(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual environment need not be active; a program of the same name in PATH has priority."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    program = Path(sys.executable).name
    bench.run(lambda ctx: ctx.command(f"type -a {program}", {}))

    assert bench.log().splitlines()[-1] == f"{program} is {sys.executable}"


def test_commands_end_with_the_session(bench: Bench) -> None:
    """An abort stops a running command, and one that was to start after it."""
    executor = bench.build()

    def work(ctx: Context) -> None:
        threading.Thread(target=lambda: (until_running(ctx), executor.abort(0, 1))).start()
        ctx.command("echo running; sleep 1000", {})

    def until_running(ctx: Context) -> None:
        while "running" not in bench.log():
            threading.Event().wait(0.01)
        assert ctx.oid == "g_a_0"

    failure = bench.run(work).failure
    later = bench.run(lambda ctx: (executor.abort(0, 1), ctx.command("sleep 1000", {}))[0]).failure

    assert failure is not None
    assert later is not None
    assert (failure.kind, later.kind) == ("Interrupted", "Interrupted")


# Inputs in directories of other nodes, which those may remove while an attempt reads them.


def _lose(place: Path) -> None:
    discard_directory(place)


def _lose_and_make_again(place: Path) -> None:
    discard_directory(place)
    (place / "files" / "in").mkdir(parents=True)


@pytest.fixture
def place(bench: Bench) -> Path:
    """The directory of the session on another node, which this one sees; it has an input."""
    path = bench.directory.parent / "other" / bench.directory.name
    (path / "files" / "in").mkdir(parents=True)
    (path / "files" / "in" / "part").write_bytes(b"1")
    return path


def _input(place: Path) -> Handle:
    return Handle(kind="directory", location=str(place / "files" / "in"), size=1)


@pytest.mark.parametrize("lose", [_lose, _lose_and_make_again])
@pytest.mark.parametrize("does_fail", [True, False])
def test_an_attempt_whose_input_is_removed_meanwhile_has_an_infrastructure_fault(
    bench: Bench, place: Path, lose: Callable[[Path], None], *, does_fail: bool
) -> None:
    """Whether its application fails or not: it may have read a part of the content. Nothing is left of its outputs."""

    def run(context: Context) -> None:
        context.outputs[0].write(b"x" * 100_000)
        lose(place)
        if does_fail:
            raise AppError("there are no parts")

    result = bench.run(run, given=_input(place))

    assert result.failure is not None
    assert (result.failure.code, result.failure.infrastructure) == (InputLostError.code, True)
    assert "input g_i_0 was removed at " in result.failure.text
    assert [path.name for path in (bench.directory / "tmp").iterdir()] == ["shm"]


def test_an_attempt_whose_input_is_gone_does_not_begin(bench: Bench, place: Path) -> None:
    """Its application is not called."""
    begun = []
    discard_directory(place)
    result = bench.run(lambda _: begun.append(1), given=_input(place))

    assert result.failure is not None
    assert (result.failure.code, begun) == (InputLostError.code, [])


def test_an_application_that_fails_with_its_inputs_there_has_failed(bench: Bench, place: Path) -> None:
    """Its own error is reported, also if it changes what it reads; and for a file of its own session that is gone."""

    def run(_: Context) -> None:
        (place / "files" / "in" / "part").unlink()
        raise AppError("no")

    results = [bench.run(run, given=_input(place))]
    own = bench.directory / "files" / "in"
    own.mkdir()

    def run_here(_: Context) -> None:
        own.rmdir()
        raise AppError("no")

    results.append(bench.run(run_here, given=Handle(kind="directory", location=str(own)), attempt=2))

    assert [result.failure and (result.failure.text, result.failure.infrastructure) for result in results] == [
        ("no", False),
        ("no", False),
    ]


def test_a_directory_that_cannot_be_removed_is_at_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So removing it can be tried again. What a process left that ended meanwhile is removed later."""
    path = tmp_path / "session"
    path.mkdir()

    def fail(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", fail)
        with pytest.raises(PermissionError, match="Permission denied"):
            remove_directory(path)
    assert [*tmp_path.iterdir()] == [path]

    (tmp_path / ".removed-0" / "files").mkdir(parents=True)
    remove_rest(tmp_path)
    for _ in range(2):
        remove_directory(path)
        discard_directory(path)
    assert [*tmp_path.iterdir()] == []
