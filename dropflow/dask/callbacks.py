"""Dask's callbacks (`dask.callbacks`, `dask.diagnostics`), called while dropflow executes a graph."""

import contextvars
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, cast

from dask.callbacks import local_callbacks, unpack_callbacks

from dropflow.dask.translate import TranslatedGraph
from dropflow.dask.values import value_of
from dropflow.execution.content_location import Handle
from dropflow.execution.decisions.events import Action, Event, Finished, Run
from dropflow.execution.session import Instrument

_Callbacks = Sequence[tuple[Callable[..., object] | None, ...]]
_MOST_PIECES = 400
"""Pieces of printed text that are kept for one task; of more, the older half is dropped."""
_LONGEST = 4096
"""Characters of a piece of text that are kept: the last ones."""
_PRINTED: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("dropflow_dask_printed", default=None)


@contextmanager
def active_callbacks(callbacks: Any = None) -> Iterator[_Callbacks]:
    """Yield the callbacks of a computation: by default those that are registered, which computations in it ignore."""
    with local_callbacks(callbacks) as callables:
        yield tuple(callables)


class CallbackInstrument(Instrument):
    """Calls the callbacks, with the state of the computation in the form that they expect.

    Parameters
    ----------
    callbacks : sequence of tuple
        The callbacks.
    nodes : mapping
        The dask graph, which is passed to them.
    tasks : TranslatedGraph
        The tasks that are executed.
    """

    def __init__(self, callbacks: _Callbacks, nodes: Mapping[Hashable, Any], tasks: TranslatedGraph) -> None:
        self._callbacks = callbacks
        self._before, self._after = unpack_callbacks(callbacks)[2:4]
        self._nodes = nodes
        self._tasks = tasks
        self._begun: list[tuple[Callable[..., object] | None, ...]] = []
        count = tasks.tasks
        self._state: dict[str, Any] = {
            "cache": {
                key: getattr(node, "value", node)
                for key, node in zip(tasks.keys[count:], tasks.nodes[count:], strict=True)
            },
            "waiting": dict.fromkeys(tasks.keys[:count], frozenset()),
            "ready": [],
            "running": set(),
            "finished": set(),
            "released": set(),
        }
        self.content: Callable[[int], Handle | None] = lambda _: None
        """Returns the content of a drop. Set before the session begins."""
        self.on_error: Callable[[BaseException], None] = lambda _: None
        """Called with what a callback raises. Set before the session begins."""

    def begin(self) -> None:
        """Call those for the beginning."""
        for each in self._callbacks:
            if each[0] is not None:
                each[0](self._nodes)
            self._begun.append(each)
        for each in self._callbacks:
            if each[1] is not None:
                each[1](self._nodes, self._state)

    def end(self, *, has_failed: bool) -> None:
        """Call those for the end whose beginning was called."""
        for each in self._begun:
            if each[4] is not None:
                each[4](self._nodes, self._state, has_failed)

    def on_events(self, events: Sequence[Event]) -> None:
        """Call those for tasks that have ended."""
        for event in events:
            if isinstance(event, Finished) and event.drop < self._tasks.tasks:
                self._call(self._finish, event.drop)

    def on_actions(self, actions: Sequence[Action]) -> None:
        """Call those for tasks whose inputs are complete."""
        for action in actions:
            if isinstance(action, Run) and action.drop < self._tasks.tasks:
                self._call(self._start, action.drop)

    def _call(self, function: Callable[[int], None], drop: int) -> None:
        try:
            function(drop)
        except BaseException as error:  # noqa: BLE001 - the caller of the computation gets it
            self.on_error(error)

    def _start(self, drop: int) -> None:
        key, state = self._tasks.keys[drop], self._state
        state["waiting"].pop(key, None)
        state["running"].add(key)
        for call in self._before:
            call(key, self._nodes, state)

    def _finish(self, drop: int) -> None:
        key, state = self._tasks.keys[drop], self._state
        state["running"].discard(key)
        state["finished"].add(key)
        handle = self.content(drop + self._tasks.tasks)
        for call in self._after:
            call(key, value_of(getattr(handle, "value", None)), self._nodes, state, None)


# What tasks print in threads of this process, for the notes of their exceptions. It is printed as before, too.


def keep_printed(pieces: list[str]) -> None:
    """Keep what is printed in the current context from now on, while `collecting`: its end, in pieces."""
    _PRINTED.set(pieces)


class _CopiedStream:
    """A standard stream whose text is also kept for the task that prints it."""

    def __init__(self, original: TextIO) -> None:
        self._original = original

    def write(self, text: str) -> int:
        pieces = _PRINTED.get()
        if pieces is not None and isinstance(text, str):
            pieces.append(text[-_LONGEST:])
            if len(pieces) > _MOST_PIECES:
                del pieces[: _MOST_PIECES // 2]
        return self._original.write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __iter__(self) -> Iterator[str]:
        return iter(self._original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class _Streams:
    """The standard streams of this process, replaced while computations run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._replaced: dict[str, _CopiedStream] = {}

    def begin(self) -> None:
        with self._lock:
            self._users += 1
            for name in ("stdout", "stderr"):
                # Other code, such as a notebook or a test, may have replaced it since a computation began.
                current = getattr(sys, name)
                if current is not None and not isinstance(current, _CopiedStream):
                    self._replaced[name] = _CopiedStream(current)
                    setattr(sys, name, cast(TextIO, self._replaced[name]))

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
            for name, stream in self._replaced.items():
                if getattr(sys, name) is stream:
                    setattr(sys, name, stream._original)  # noqa: SLF001 - of this file
            self._replaced.clear()


_STREAMS = _Streams()


@contextmanager
def collecting() -> Iterator[None]:
    """Keep the texts that are printed in contexts where `keep_printed` was called."""
    _STREAMS.begin()
    try:
        yield
    finally:
        _STREAMS.end()
