"""Runs one task of dask: from the contents of its inputs to the content of its output."""

import os
import shutil
import socket
import tempfile
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

from dask._task_spec import _execute_subgraph
from dask.task_spec import Task
from dask.utils import funcname

from dropflow.apps.app_interface import Context, InputData, OutputData
from dropflow.dask_tasks.fused_blocks import run_node
from dropflow.dask_tasks.logged_exceptions import log_exception
from dropflow.dask_tasks.task_pages import TaskPages
from dropflow.dask_tasks.value_encoding import decode_value, encode_value, read_value
from dropflow.data.memory import SMALL
from dropflow.errors import AppError
from dropflow.failure import summary_of
from dropflow.formatting import few
from dropflow.graph.templates import Template

_SHOWN_FILES = 5
"""Files in the message about what a task has written with relative paths."""
_HOST = socket.gethostname()
_ABSOLUTE = "give absolute paths that lead to the same directory on all nodes, or return the data"
_READABLE = "give the absolute path of a file that all nodes have, or read it before and pass its content"


class TaskRunner:
    """Runs the tasks of one template.

    Parameters
    ----------
    tasks : mapping
        The tasks, from `dropflow.dask_tasks.task_pages.encode_pages`.
    labels : mapping of str to str
        The first part of the keys of inputs, by the key of their template.
    template : Template
        The template.
    """

    def __init__(self, tasks: Mapping[str, Any], labels: Mapping[str, str], template: Template) -> None:
        self._tasks = TaskPages(tasks, template.name)
        self._labels = labels
        self._shape = template.shape
        self._folder: _OwnFolder | None = None
        self._is_begun = False

    def run(self, context: Context) -> None:
        """Compute the value of the task, and write it to its output."""
        entry = self._tasks.take(self._instance(context.index))
        values = {self._key(source.oid, entry.keys): _value(source) for source in context.inputs}
        for alias, key in entry.aliases.items():
            values[alias] = values[key]
        if not self._is_begun:
            self._is_begun, self._folder = True, _own_folder(context)
        try:
            value = run_node(entry.node, values) if self._folder is None else self._folder.run(entry.node, values)
        except BaseException as error:
            log_exception(context, error)
            raise
        for output in context.outputs:
            _write(output, value)

    def _instance(self, index: tuple[int, ...]) -> int:
        row = 0
        for position, size in zip(index, self._shape, strict=True):
            row = row * size + position
        return row

    def _key(self, oid: str, keys: Mapping[str, Hashable]) -> Hashable:
        """Return the key of an input: its id is that of the template, and its indices after the root's."""
        key = keys.get(oid)
        if key is not None:
            return key
        head, _, tail = oid.rpartition("_")
        return (self._labels[head], *map(int, tail.split("-")[1:]))


class _OwnFolder:
    """Working directory of the tasks of a session in a worker process of a node.

    A relative path leads neither to the directory of the program nor to that of another task, and what is there is
    removed with the session. So a task that leaves a file there fails.
    """

    def __init__(self, files: Path) -> None:
        temporary = files.parent / "tmp"
        temporary.mkdir(exist_ok=True)
        self._files = str(files)
        self._path = Path(tempfile.mkdtemp(prefix="tasks-", dir=temporary))

    def run(self, node: Any, values: Mapping[Hashable, Any]) -> Any:
        """Return the value of a node.

        Raises
        ------
        AppError
            It has left files with relative paths.
        """
        # One attempt at a time runs in a worker process.
        os.chdir(self._path)  # noqa: TID251
        try:
            value = run_node(node, values)
        except FileNotFoundError as error:
            if error.filename is None or not os.path.isabs(error.filename):  # noqa: PTH117 - it may be bytes, or a number
                _explain(error, _called(node))
            raise
        finally:
            os.chdir(self._files)  # noqa: TID251
            left = self._taken_away()
        if left:
            raise AppError(
                f"{_called(node)} has written {few(left, _SHOWN_FILES)} with a relative path: it is in a "
                f"temporary directory on {_HOST}, and would be lost",
                hint=_ABSOLUTE,
            )
        return value

    def _taken_away(self) -> list[str]:
        """Return the relative paths of what is in the directory, and remove it."""
        if not any(os.scandir(self._path)):
            return []
        taken = [str(path.relative_to(self._path)) for path in sorted(self._path.rglob("*")) if not path.is_dir()]
        taken = taken or [f"{path.name}/" for path in sorted(self._path.iterdir())]
        shutil.rmtree(self._path, ignore_errors=True)
        self._path.mkdir(exist_ok=True)
        return taken


def _explain(error: FileNotFoundError, call: str) -> None:
    """Add to the text of an error why a relative path leads nowhere; it stays what the function has raised."""
    why = f"{call} ran on {_HOST}, where a relative path leads to an empty temporary directory: {_READABLE}"
    *before, text = error.args[:2] or ("",)
    error.args = *before, f"{text} ({why})"
    if before:
        error.strerror = error.args[1]


def _own_folder(context: Context) -> _OwnFolder | None:
    """Return a directory for tasks if they run in that of the session; elsewhere they run where the user expects."""
    files = context.directory
    return _OwnFolder(files) if files.is_dir() and files.samefile(".") else None


def _called(node: Any) -> str:
    """Return the names of the functions that a task calls."""
    if not isinstance(node, Task):
        return "a task"
    if node.func is _execute_subgraph:
        return ", ".join(dict.fromkeys(_called(task) for task in node.args[0].values() if isinstance(task, Task)))
    return f"{funcname(node.func)}()"


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
            hint="return a value that can be pickled, or use the runner 'threads', which needs no pickles",
        ) from problem
    for piece in pieces:
        output.write(piece)
