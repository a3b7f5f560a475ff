"""Runs one task of dask: from the contents of its inputs to the content of its output."""

from collections.abc import Hashable, Mapping
from typing import Any

from dropflow.apps.api import Context, InputData, OutputData
from dropflow.dask_tasks.fused_blocks import run_node
from dropflow.dask_tasks.logged_exceptions import log_exception
from dropflow.dask_tasks.task_pages import TaskPages
from dropflow.dask_tasks.value_encoding import decode_value, encode_value, read_value
from dropflow.data.memory import SMALL
from dropflow.errors import AppError
from dropflow.exception_text import summary_of
from dropflow.graph.templates import Template

__all__ = ["TaskRunner"]


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

    def run(self, context: Context) -> None:
        """Compute the value of the task, and write it to its output."""
        entry = self._tasks.take(self._instance(context.index))
        values = {self._key(one.oid, entry.keys): _value(one) for one in context.inputs}
        for alias, key in entry.aliases.items():
            values[alias] = values[key]
        try:
            value = run_node(entry.node, values)
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
