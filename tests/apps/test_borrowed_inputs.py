"""Inputs in directories of other nodes, which those may remove while an attempt reads them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dropflow.apps.api import Context
from dropflow.data.shm_directory import discard_directory, remove_directory, remove_rest
from dropflow.engine.api import Handle
from dropflow.errors import AppError, InputLostError
from tests.apps.test_execute import Bench, bench

__all__ = ["bench"]


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
