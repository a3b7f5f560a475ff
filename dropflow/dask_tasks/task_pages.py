"""Tasks of one template as bytes: the code that they share once, and the tasks themselves in pages.

The client writes pages (`encode_pages`), and the process that runs an attempt loads the page of its task (`TaskPages`).
Both are code of the user: a page is unpickled only where applications run.
"""

import io
import pickle
from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
from dask.task_spec import Task

from dropflow.dask_tasks.value_encoding import FilePickler
from dropflow.errors import AppError
from dropflow.failure import summary_of
from dropflow.files import PICKLE_PROTOCOL

_PAGE = 256
"""Tasks on a page: few enough to load in a millisecond or two, and enough to hide the cost of a page."""
_NOTHING: Mapping[Any, Any] = {}
"""Shared by the many tasks without keys and aliases of their own. Never changed."""
_SHARED_SIZE = 1024
"""Bytes from which an array, or other bytes, that several tasks have are written once."""


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """One task.

    Attributes
    ----------
    instance : int
        Number of the instance in its template.
    node : object
        The task of dask, or a constant.
    keys : mapping of str to key
        The keys of its inputs that their ids do not tell, by id.
    aliases : mapping of key to key
        Other names that it has for its inputs.
    """

    instance: int
    node: Any
    keys: Mapping[str, Hashable]
    aliases: Mapping[Hashable, Hashable]


class _PagePickler(FilePickler):
    """Pickles tasks. Functions and large contents go to a list that all pages share."""

    def __init__(self, stream: io.BytesIO, rows: dict[int, int], shared: list[Any]) -> None:
        super().__init__(stream, protocol=PICKLE_PROTOCOL)
        self._rows = rows
        self._shared = shared

    def persistent_id(self, item: Any) -> int | None:
        kind = type(item)
        if kind is not FunctionType and not (
            (kind is np.ndarray and item.nbytes >= _SHARED_SIZE) or (kind is bytes and len(item) >= _SHARED_SIZE)
        ):
            return None
        row = self._rows.get(id(item))
        if row is None:
            row = self._rows[id(item)] = len(self._shared)
            self._shared.append(item)
        return row

    def reducer_override(self, item: Any) -> Any:
        if type(item) is Task and not item.kwargs:
            return Task, (None, item.func, *item.args)
        return super().reducer_override(item)


class _PageUnpickler(pickle.Unpickler):
    def __init__(self, data: bytes, shared: Sequence[Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._shared = shared

    def persistent_load(self, row: Any) -> Any:
        return self._shared[row]


def encode_pages(entries: Sequence[TaskEntry], name: str) -> dict[str, Any]:
    """Return the tasks of a template, as the value of a field: bytes, numbers, lists and a dictionary.

    Parameters
    ----------
    entries : sequence of TaskEntry
        By ascending instance.
    name : str
        Name of the template, for messages.

    Raises
    ------
    AppError
        A task cannot be pickled.
    """
    rows: dict[int, int] = {}
    shared: list[Any] = []
    pages, first = [], []
    try:
        for start in range(0, len(entries), _PAGE):
            page = entries[start : start + _PAGE]
            stream = io.BytesIO()
            plain = [(entry.instance, entry.node, entry.keys or None, entry.aliases or None) for entry in page]
            _PagePickler(stream, rows, shared).dump(plain)
            pages.append(stream.getvalue())
            first.append(page[0].instance)
        stream = io.BytesIO()
        FilePickler(stream, protocol=PICKLE_PROTOCOL).dump(shared)
        return {"shared": stream.getvalue(), "pages": pages, "first": first}
    except Exception as problem:
        raise AppError(
            f"the tasks {name!r} cannot be pickled, and they run in another process: {summary_of(problem)}",
            hint="use values that can be pickled, or the runner 'threads', which needs no pickles",
        ) from problem


class TaskPages:
    """The tasks of a template, loaded by pages, and forgotten one by one when they are taken.

    Parameters
    ----------
    value : mapping
        From `encode_pages`.
    name : str
        Name of the template, for messages.
    """

    def __init__(self, value: Mapping[str, Any], name: str) -> None:
        self._value = value
        self._name = name
        self._shared: list[Any] | None = None
        self._pages: dict[int, dict[int, TaskEntry]] = {}

    def take(self, instance: int) -> TaskEntry:
        """Return the task of an instance, and forget it: 100,000 tasks would take 60 MB or more.

        A task that is repeated loads its page again.

        Raises
        ------
        AppError
            It cannot be unpickled here.
        """
        number = bisect_right(self._value["first"], instance) - 1
        page = self._pages.get(number)
        if page is None or instance not in page:
            page = self._pages[number] = self._load(number)
        return page.pop(instance)

    def _load(self, number: int) -> dict[int, TaskEntry]:
        try:
            if self._shared is None:
                self._shared = pickle.loads(self._value["shared"])  # noqa: S301 - code of the graph, which runs here
            rows = _PageUnpickler(self._value["pages"][number], self._shared).load()
        except Exception as problem:
            raise AppError(
                f"the tasks {self._name!r} cannot be unpickled: {summary_of(problem)}",
                hint="install the modules that they need in the environment of the workers, in the versions of the "
                "client; modules that are not installed there go along after cloudpickle.register_pickle_by_value",
            ) from problem
        return {row: TaskEntry(row, node, keys or _NOTHING, aliases or _NOTHING) for row, node, keys, aliases in rows}
