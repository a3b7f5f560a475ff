"""Logs of server processes."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from dropflow.cli.server_process import start_logging
from dropflow.errors import StorageError


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Restore the handlers and the level of logging."""
    top = logging.getLogger()
    handlers, level = list(top.handlers), top.level
    top.handlers.clear()
    yield
    for handler in top.handlers:
        handler.close()
    top.handlers[:] = handlers
    top.setLevel(level)


def read(path: Path) -> str:
    """Return the log."""
    for handler in logging.getLogger().handlers:
        handler.flush()
    return path.read_text(encoding="utf-8")


def test_a_record_has_session_drop_and_attempt(tmp_path: Path) -> None:
    """They are at the end of a text line, and fields of a JSON object."""
    fields = {"session": "s", "drop": "s_1", "attempt": 2}
    for as_json in (False, True):
        path = tmp_path / f"{as_json}.log"
        start_logging(level="info", file=str(path), as_json=as_json)
        logging.getLogger("dropflow.test").warning("late by %d s", 3, extra=fields)
        line = read(path)
        if as_json:
            assert fields.items() <= json.loads(line).items()
            assert json.loads(line)["text"] == "late by 3 s"
        else:
            assert line.endswith("late by 3 s session=s drop=s_1 attempt=2\n")


def test_secrets_are_replaced(tmp_path: Path) -> None:
    """The token is not written, not even in tracebacks."""
    path = tmp_path / "a.log"
    start_logging(level="info", file=str(path), as_json=True, secrets=["tok-en"])
    try:
        int("tok-en")
    except ValueError:
        logging.getLogger("dropflow.test").exception("with tok-en")

    assert "tok-en" not in read(path)
    assert "***" in read(path)


def test_text_cannot_look_like_another_record(tmp_path: Path) -> None:
    """Further lines of a text are indented."""
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


def test_a_log_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    """The message names the file."""
    with pytest.raises(StorageError, match=r"a\.log"):
        start_logging(level="info", file=str(tmp_path / "missing" / "a.log"), as_json=False)
