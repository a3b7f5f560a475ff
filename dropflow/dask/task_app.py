"""The application that runs tasks of dask where values travel: in worker processes, and on nodes."""

import base64
import pickle
from collections.abc import Hashable, Mapping
from typing import Any

from dropflow.apps.api import App, Context, InputData, OutputData
from dropflow.dask.fused_blocks import run_node
from dropflow.dask.task_pages import TaskPages
from dropflow.dask.value_encoding import decode_value, encode_value, read_value
from dropflow.data.memory import SMALL
from dropflow.errors import AppError
from dropflow.exception_text import summary_of
from dropflow.graph.templates import Template

__all__ = ["DASK_TASK", "KEYS_FIELD", "TASKS_FIELD", "DaskTask", "exception_in_log", "without_exceptions"]

DASK_TASK = "dropflow.dask.task_app.DaskTask"
"""Component of the applications."""
TASKS_FIELD = "tasks"
"""Field with the tasks of a template, see `dropflow.dask.task_pages`."""
KEYS_FIELD = "keys"
"""Field with the first part of the keys of inputs, by the key of their template."""

_EXCEPTION = "exception as a pickle: "
_LONGEST = 1 << 16
"""Bytes of the largest pickle of an exception that is written to the log."""


class DaskTask(App):
    """Runs tasks of dask. The index of the drop says which one of its template."""

    def __init__(self, template: Template) -> None:
        super().__init__(template)
        fields = {one.name: one.value for one in template.arguments}
        self._tasks = TaskPages(fields[TASKS_FIELD], template.name)
        self._labels: Mapping[str, str] = fields[KEYS_FIELD]

    def run(self, context: Context) -> None:
        """Compute the value of the task, and write it to its output."""
        entry = self._tasks.entry(self._instance(context.index))
        values = {self._key(one.oid, entry.keys): _value(one) for one in context.inputs}
        for alias, key in entry.aliases.items():
            values[alias] = values[key]
        try:
            value = run_node(entry.node, values)
        except BaseException as error:
            _log_exception(context, error)
            raise
        for output in context.outputs:
            _write(output, value)

    def _instance(self, index: tuple[int, ...]) -> int:
        row = 0
        for position, size in zip(index, self.template.shape, strict=True):
            row = row * size + position
        return row

    def _key(self, oid: str, keys: Mapping[str, Hashable]) -> Hashable:
        """Return the key of an input: its id is that of the template, and its indices after the root's."""
        key = keys.get(oid)
        if key is not None:
            return key
        head, _, tail = oid.rpartition("_")
        return (self._labels[head], *map(int, tail.split("-")[1:]))


def _value(source: InputData) -> Any:
    """Return the value of an input. Its arrays may be written to; that changes no other reader's."""
    if source.size <= SMALL:
        return decode_value(bytearray(source.read()))
    with source.open() as stream:
        return read_value(stream)


def _write(output: OutputData, value: Any) -> None:
    try:
        pieces = encode_value(value)
    except Exception as problem:
        raise AppError(
            f"the value of {output.oid}, a {type(value).__name__}, cannot be pickled: {summary_of(problem)}",
            hint="return what can be pickled, or use the runner 'threads', which needs no pickles",
        ) from problem
    for piece in pieces:
        output.write(piece)


def _log_exception(context: Context, error: BaseException) -> None:
    """Write an exception to the log of the drop, so that the client can raise it again."""
    try:
        body = _pickled(error)
        if len(body) <= _LONGEST:
            context.log(_EXCEPTION + base64.b64encode(body).decode(), "DEBUG")
    except Exception:  # noqa: BLE001 - the class of the exception may do anything; then its text has to do
        return


def _pickled(error: BaseException) -> bytes:
    """Return a pickle of an exception that can be loaded."""
    import cloudpickle  # noqa: PLC0415 - only for exceptions

    for dumps in (pickle.dumps, cloudpickle.dumps):
        try:
            body: bytes = dumps(error, protocol=5)
            pickle.loads(body)  # noqa: S301 - some classes cannot be loaded
        except Exception:  # noqa: BLE001, S112 - as above
            continue
        return body
    raise ValueError("it cannot be pickled")


def exception_in_log(log: bytes) -> BaseException | None:
    """Return the last exception in the log of a drop; None if there is none that can be loaded here."""
    _, found, rest = log.rpartition(_EXCEPTION.encode())
    if not found:
        return None
    try:
        error = pickle.loads(base64.b64decode(rest.split(b"\n", 1)[0]))  # noqa: S301 - from a task of the same user
    except Exception:  # noqa: BLE001 - its module may be missing here; then its text has to do
        return None
    return error if isinstance(error, BaseException) else None


def without_exceptions(log: bytes) -> bytes:
    """Return a log without the lines that have exceptions."""
    return b"".join(line for line in log.splitlines(keepends=True) if _EXCEPTION.encode() not in line)
