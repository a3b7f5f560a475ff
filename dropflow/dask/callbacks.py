"""Dask's callbacks (`dask.callbacks`, `dask.diagnostics`), called while dropflow executes a graph."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from dask.callbacks import local_callbacks, unpack_callbacks

from dropflow.dask.translate import TranslatedGraph
from dropflow.dask.value_memory import value_of
from dropflow.engine.api import Handle
from dropflow.engine.events import Action, Event, Finished, Run
from dropflow.engine.instruments import Instrument

__all__ = ["CallbackInstrument", "active_callbacks"]

_Callbacks = Sequence[tuple[Callable[..., object] | None, ...]]


@contextmanager
def active_callbacks(callbacks: Any = None) -> Iterator[_Callbacks]:
    """Yield the callbacks of a computation: by default those that are registered, which computations in it ignore."""
    with local_callbacks(callbacks) as found:
        yield tuple(found)


class CallbackInstrument(Instrument):
    """Calls the callbacks, with the state of the computation in the form that they expect.

    Parameters
    ----------
    callbacks : sequence of tuple
        The callbacks.
    nodes : mapping
        The dask graph, which is passed to them.
    tasks : TranslatedGraph
        What is executed.
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
