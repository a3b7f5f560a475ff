"""Interrupting the code of an application: where the exception is raised, and where it never is."""

import os
import threading
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from random import Random

import pytest

from dropflow.apps.api import Context
from dropflow.data.file import FileWriter
from dropflow.engine.api import AttemptResult
from dropflow.engine.drop_log import DropLog
from dropflow.errors import Interrupted
from tests.apps.test_execute import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """An application between two data drops."""
    found = Bench(tmp_path / "session")
    yield found
    found.close()
    found.repository.close()


def _aborted(bench: Bench, run: Callable[[Context], None], began: threading.Event) -> AttemptResult:
    """Run one attempt that is aborted from another thread once it `began`."""
    executor = bench.build()
    stopper = threading.Thread(target=lambda: (began.wait(), executor.abort(0, 1)))
    stopper.start()
    result = bench.run(run)
    stopper.join()
    return result


def test_python_code_is_interrupted(bench: Bench) -> None:
    """A loop gets the exception, its `finally` runs, and what it wrote is removed."""
    began, cleaned = threading.Event(), threading.Event()

    def compute(ctx: Context) -> None:
        ctx.outputs[0].write(b"x" * 1_000_000)
        try:
            began.set()
            while True:
                pass
        finally:
            cleaned.set()

    result = _aborted(bench, compute, began)

    assert result.failure is not None
    assert (result.failure.kind, result.failure.retryable) == ("Interrupted", False)
    assert cleaned.is_set()
    assert not list((bench.directory / "tmp" / "shm").iterdir())
    assert "Traceback" not in bench.log()


def test_except_exception_does_not_catch_it(bench: Bench) -> None:
    """A loop that survives every `Exception` ends all the same."""
    began = threading.Event()

    def stubborn(_: Context) -> None:
        while True:
            try:
                began.set()
                while True:
                    pass
            except Exception:  # noqa: BLE001, S112 - what many loops of users do
                continue

    result = _aborted(bench, stubborn, began)

    assert result.failure is not None
    assert result.failure.kind == "Interrupted"


def test_an_attempt_is_interrupted_once(bench: Bench) -> None:
    """Code that cleans up is not interrupted again by a second abort."""
    began = threading.Event()
    caught: list[BaseException] = []

    def compute(_: Context) -> None:
        try:
            began.set()
            while True:
                pass
        except Interrupted as error:
            caught.append(error)
            assert bench.executor is not None
            bench.executor.abort(0, 1)
            caught.append(Interrupted("cleaned up"))
            raise

    result = _aborted(bench, compute, began)

    assert result.failure is not None
    assert [str(error) for error in caught] == ["", "cleaned up"]


def test_a_line_of_the_log_is_not_interrupted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception comes after the line, also if the abort comes while its file is opened; other threads go on."""
    opened = DropLog._open
    lines: list[str] = []

    def late(log: DropLog) -> FileIO:
        assert bench.executor is not None
        bench.executor.abort(0, 1)
        return opened(log)

    def compute(ctx: Context) -> None:
        try:
            ctx.log("whole")
        finally:
            lines.append(bench.log())
            other = threading.Thread(target=ctx.log, args=("of another thread",))
            other.start()
            other.join()
            ctx.log("cleaned up")

    monkeypatch.setattr(DropLog, "_open", late)
    result = bench.run(compute)

    assert result.failure is not None
    assert result.failure.kind == "Interrupted"
    assert lines[0].endswith(" whole\n")
    assert [line.split(" INFO ")[1] for line in bench.log().splitlines()] == [
        "whole",
        "of another thread",
        "cleaned up",
    ]


def test_an_import_is_not_interrupted(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception comes after the import: half an import of a compiled module cannot be repeated."""
    monkeypatch.syspath_prepend(tmp_path)
    began = threading.Event()
    monkeypatch.setitem(__import__("sys").modules, "beginning", began)  # type: ignore[arg-type]
    source = "import beginning, time\nbeginning.set()\nfor _ in range(30): time.sleep(0.01)\nis_whole = True\n"
    (tmp_path / "slowly_imported.py").write_text(source)
    whole: list[bool] = []

    def load(_: Context) -> None:
        import slowly_imported  # type: ignore[import-not-found]  # noqa: PLC0415 - made above

        whole.append(slowly_imported.is_whole)
        while True:
            pass

    result = _aborted(bench, load, began)

    assert result.failure is not None
    assert result.failure.kind == "Interrupted"
    assert whole == [True]


def test_a_file_is_not_left_open(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An abort just when the file of an output was opened leaves neither the file nor a descriptor of it."""
    opened = FileWriter._descriptor
    found: list[int] = []

    def late(writer: FileWriter) -> int:
        found.append(opened(writer))
        assert bench.executor is not None
        bench.executor.abort(0, 1)
        return found[0]

    monkeypatch.setattr(FileWriter, "_descriptor", late)
    result = bench.run(lambda ctx: ctx.outputs[0].write(b"x" * 1_000_000) and None)

    assert result.failure is not None
    assert result.failure.kind == "Interrupted"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(found[0])
    assert not list((bench.directory / "tmp" / "shm").iterdir())


@pytest.mark.slow
def test_nothing_is_raised_outside_of_the_application(bench: Bench) -> None:
    """Whenever an abort comes, the attempt returns a result, and no exception is left for what its thread does next."""
    executor = bench.build()
    chance = Random(7)  # noqa: S311 - moments, not secrets
    over = threading.Event()
    attempt = [0]

    def harass() -> None:
        while not over.is_set():
            executor.abort(0, attempt[0])
            over.wait(chance.random() * 2e-4)

    stopper = threading.Thread(target=harass)
    stopper.start()
    kinds: set[str] = set()
    try:
        for number in range(1, 4000):
            attempt[0] = number
            result = bench.run(lambda _: sum(range(chance.randrange(2000))) and None, attempt=number)
            kinds.add("" if result.failure is None else result.failure.kind)
            sum(range(1000))  # what is pending would be raised here
    finally:
        over.set()
        stopper.join()

    assert kinds == {"", "Interrupted"}
