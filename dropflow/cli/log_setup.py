"""Logs of server processes: one line a record, as text or JSON, with session, drop, attempt and node.

These come from ``extra={"session": ..., "drop": ..., "attempt": ...}`` of a logging call, as far as they are known.
"""

import logging
import sys
from collections.abc import Collection
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from time import gmtime, strftime
from typing import Any

import msgspec

from dropflow.errors import StorageError, UsageError
from dropflow.files import private_opener
from dropflow.formatting import printable

__all__ = ["LOG_FILE", "start_logging"]

LOG_FILE = "manager.log"
"""Name of the own log in the directory of a manager; also `dropflow.api.logs.MANAGER_LOG`."""

_FIELDS = ("session", "drop", "attempt", "node")
_MOST_BYTES = 2 << 20
"""Bytes of the own log, and of the one before it, which is kept."""


class _Formatter(logging.Formatter):
    """One line a record, with secrets replaced by asterisks."""

    def __init__(self, *, as_json: bool, secrets: Collection[str]) -> None:
        super().__init__()
        self._as_json = as_json
        self._secrets = tuple(secret for secret in secrets if secret)

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line."""
        fields = {name: value for name in _FIELDS if (value := getattr(record, name, None)) is not None}
        moment = strftime("%Y-%m-%dT%H:%M:%S", gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        text = record.getMessage()
        trouble = self.formatException(record.exc_info) if record.exc_info else ""
        line = self._json(record, moment, text, trouble, fields) if self._as_json else ""
        if not self._as_json:
            extra = "".join(f" {name}={value}" for name, value in fields.items())
            # Text from outside must not look like another record, so its further lines are indented.
            flat = text.replace("\r", " ").replace("\n", "\n    ")
            line = f"{moment} {record.levelname:<7} {record.name}: {flat}{extra}"
            line += "".join(f"\n    {row}" for row in trouble.splitlines())
            line = printable(line)
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line

    def _json(self, record: logging.LogRecord, moment: str, text: str, trouble: str, fields: dict[str, Any]) -> str:
        content = {"time": moment, "level": record.levelname.lower(), "logger": record.name, "text": text}
        extra = {name: value if isinstance(value, int) else str(value) for name, value in fields.items()}
        return msgspec.json.encode(content | extra | ({"trouble": trouble} if trouble else {})).decode()


def start_logging(
    *, level: str, file: str | None, as_json: bool, own: Path | None = None, secrets: Collection[str] = ()
) -> None:
    """Send the logs of this process to standard error, or to `file`, and to its own file.

    Parameters
    ----------
    level : str
        The least severe level that is logged.
    as_json : bool
        Whether `file` or standard error gets JSON.
    own : Path, optional
        The file that servers show (`dropflow.api.logs`), as text. When it is full, it replaces the one before.
    secrets : collection of str
        Replaced by asterisks in all records.

    Raises
    ------
    StorageError
        A file cannot be opened.
    UsageError
        The own file is to have JSON.
    """
    handlers: list[logging.Handler] = []
    is_own = own is not None and file is not None and Path(file).resolve() == own.resolve()
    if is_own and as_json:
        raise UsageError(f"{file} has the log as text", hint="name another file for JSON")
    if own is not None:
        handlers.append(_own_log(own))
        handlers[0].setFormatter(_Formatter(as_json=False, secrets=secrets))
    if not is_own:
        handlers.append(logging.StreamHandler(sys.stderr) if file is None else _file_log(file))
        handlers[-1].setFormatter(_Formatter(as_json=as_json, secrets=secrets))
    logging.raiseExceptions = False  # with a log on a full disk, logging would print a traceback for each record
    logging.basicConfig(handlers=handlers, level=level.upper(), force=True)
    for noisy in ("waitress", "zeroconf", "asyncio"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))


class _PrivateFile(RotatingFileHandler):
    """A log that only its owner can read, whatever the umask is: messages may have parts of users' data."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=private_opener)


def _file_log(file: str) -> logging.Handler:
    try:
        return logging.FileHandler(Path(file), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"the log cannot be opened: {error.strerror}", where=file) from error


def _own_log(path: Path) -> logging.Handler:
    try:
        return _PrivateFile(path, maxBytes=_MOST_BYTES, backupCount=1, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"the log cannot be opened: {error.strerror}", where=str(path)) from error
