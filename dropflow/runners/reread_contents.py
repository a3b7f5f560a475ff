"""Contents that many attempts read, sent to a worker process once and not with each attempt.

The pool and the worker keep the contents that were sent last, both of them, by the same rule and in the same order. So
the pool knows what the worker has, without an answer. A content that the worker has is sent without its bytes.
"""

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from dropflow.engine.api import Handle, Input, Task

__all__ = [
    "ReceivedContents",
    "SentContents",
]


_MOST = 8 << 20
"""Bytes that are kept for a worker."""

_Key = tuple[int, int]
"""Number of the runner, and drop."""


class _LatestContents:
    """The contents that were used last, up to a number of bytes.

    Parameters
    ----------
    most : int
        That number.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._size = 0
        self._found: OrderedDict[_Key, Handle] = OrderedDict()

    def get(self, key: _Key) -> Handle | None:
        """Return a content, which is now the last one that was used; None if it is not kept."""
        found = self._found.get(key)
        if found is not None:
            self._found.move_to_end(key)
        return found

    def add(self, key: _Key, content: Handle) -> None:
        """Keep a content, in the place of an earlier one of the drop, and remove those that were not used longest."""
        self._remove(key)
        self._found[key] = content
        self._size += content.size
        while self._size > self._most:
            self._remove(next(iter(self._found)))

    def forget(self, runner: int) -> None:
        """Remove the contents of a runner."""
        for key in [key for key in self._found if key[0] == runner]:
            self._remove(key)

    def _remove(self, key: _Key) -> None:
        content = self._found.pop(key, None)
        if content is not None:
            self._size -= content.size


class SentContents(_LatestContents):
    """What a worker keeps, as its pool knows it."""

    def without_known(self, runner: int, tasks: Sequence[Task]) -> tuple[Task, ...]:
        """Return attempts that are sent now, without the bytes of the contents that the worker has."""
        return tuple([self._without_known(runner, task) for task in tasks])

    def _without_known(self, runner: int, task: Task) -> Task:
        changed: dict[int, Input] = {}
        for position, one in enumerate(task.inputs):
            handle = one.handle
            if not one.is_reread or handle is None or not handle.body:
                continue
            key = (runner, one.drop)
            if self.get(key) is handle:
                changed[position] = msgspec.structs.replace(one, handle=msgspec.structs.replace(handle, body=b""))
            else:
                self.add(key, handle)
        return _with_inputs(task, changed) if changed else task


class ReceivedContents(_LatestContents):
    """What a worker keeps."""

    def with_known(self, runner: int, tasks: Sequence[Task]) -> Sequence[Task]:
        """Return attempts that were received, with the bytes of the contents that were sent before."""
        return [self._with_known(runner, task) for task in tasks]

    def _with_known(self, runner: int, task: Task) -> Task:
        changed: dict[int, Input] = {}
        for position, one in enumerate(task.inputs):
            handle = one.handle
            if not one.is_reread or handle is None or handle.kind != "bytes" or not handle.size:
                continue
            key = (runner, one.drop)
            if handle.body:
                self.add(key, handle)
            else:
                changed[position] = msgspec.structs.replace(one, handle=self.get(key))
        return _with_inputs(task, changed) if changed else task


def _with_inputs(task: Task, changed: dict[int, Input]) -> Task:
    """Return a task with other inputs at some positions."""
    inputs = tuple([changed.get(position, one) for position, one in enumerate(task.inputs)])
    return msgspec.structs.replace(task, inputs=inputs)
