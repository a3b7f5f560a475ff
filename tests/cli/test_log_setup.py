"""Logs of the processes that stay."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from dropflow.cli.log_setup import start_logging
from dropflow.errors import StorageError


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """What a test does to logging ends with it."""
    top = logging.getLogger()
    handlers, level = list(top.handlers), top.level
    top.handlers.clear()
    yield
    for handler in top.handlers:
        handler.close()
    top.handlers[:] = handlers
    top.setLevel(level)


def read(path: Path) -> str:
    """The log so far."""
    for handler in logging.getLogger().handlers:
        handler.flush()
    return path.read_text(encoding="utf-8")


def test_a_record_tells_session_drop_and_attempt(tmp_path: Path) -> None:
    """For people they stand at the end of the line, as JSON in fields of their own."""
    told = {"session": "s", "drop": "s_1", "attempt": 2}
    for as_json in (False, True):
        path = tmp_path / f"{as_json}.log"
        start_logging(level="info", file=str(path), as_json=as_json)
        logging.getLogger("dropflow.test").warning("late by %d s", 3, extra=told)
        line = read(path)
        if as_json:
            assert told.items() <= json.loads(line).items()
            assert json.loads(line)["text"] == "late by 3 s"
        else:
            assert line.endswith("late by 3 s session=s drop=s_1 attempt=2\n")


def test_secrets_are_struck_out(tmp_path: Path) -> None:
    """Whatever a record says, the token is not written, in tracebacks neither."""
    path = tmp_path / "a.log"
    start_logging(level="info", file=str(path), as_json=True, secrets=["tok-en"])
    try:
        int("tok-en")
    except ValueError:
        logging.getLogger("dropflow.test").exception("with tok-en")

    assert "tok-en" not in read(path)
    assert "***" in read(path)


def test_a_record_cannot_forge_another_one(tmp_path: Path) -> None:
    """What follows a line feed in a text is indented: it does not look like a record."""
    path = tmp_path / "a.log"
    start_logging(level="info", file=str(path), as_json=False)
    logging.getLogger("dropflow.test").warning("bad name: %s", "x\n2026-01-01T00:00:00.000Z ERROR root: forged")

    assert [line.startswith("20") for line in read(path).splitlines()] == [True, False]


def test_the_level_is_a_threshold(tmp_path: Path) -> None:
    """Less severe records are not written."""
    path = tmp_path / "a.log"
    start_logging(level="warning", file=str(path), as_json=False)
    logging.getLogger("dropflow.test").info("chatter")
    logging.getLogger("dropflow.test").warning("trouble")

    assert "chatter" not in read(path)
    assert "trouble" in read(path)


def test_a_log_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    """The file is named."""
    with pytest.raises(StorageError, match=r"a\.log"):
        start_logging(level="info", file=str(tmp_path / "missing" / "a.log"), as_json=False)
