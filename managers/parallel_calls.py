"""Calls in parallel, with one deadline for all."""

import logging
import queue
import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from dropflow.clock import Clock
from dropflow.errors import DropflowError, InternalError, LinkError

__all__ = ["CallResult", "call_in_parallel"]

_LOG = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True)
class CallResult(Generic[Value]):
    """The value of a call, or its error.

    Attributes
    ----------
    late : bool
        It was not over at the deadline, and still runs.
    """

    value: Value | None = None
    error: DropflowError | None = None
    late: bool = False


def call_in_parallel(
    calls: Mapping[Key, Callable[[], Value]], *, seconds: float, clock: Clock
) -> dict[Key, CallResult[Value]]:
    """Make all calls, each in its own thread, and wait for `seconds` at most.

    Returns
    -------
    dict
        A result for every call, in the order of `calls`. Errors that are not dropflow's become `InternalError`.
    """
    results: queue.SimpleQueue[tuple[Key, CallResult[Value]]] = queue.SimpleQueue()

    def run(key: Key, call: Callable[[], Value]) -> None:
        results.put((key, _result(key, call)))

    deadline = clock.monotonic() + seconds
    for key, call in calls.items():
        threading.Thread(target=run, args=(key, call), name=f"call:{key}", daemon=True).start()
    found: dict[Key, CallResult[Value]] = {}
    while len(found) < len(calls):
        try:
            key, result = results.get(timeout=max(deadline - clock.monotonic(), 0.0))
        except queue.Empty:
            break
        found[key] = result
    late = CallResult[Value](error=LinkError(f"no answer within {seconds:.3g} s"), late=True)
    return {key: found.get(key, late) for key in calls}


def _result(key: Key, call: Callable[[], Value]) -> CallResult[Value]:
    try:
        return CallResult(call())
    except DropflowError as error:
        return CallResult(error=error)
    except Exception as error:  # noqa: BLE001 - the caller waits for a result
        _LOG.exception("a call to %s failed", key)
        wrapped = InternalError(f"the call failed: {type(error).__name__}: {error}", hint="please report it")
        wrapped.__cause__ = error
        return CallResult(error=wrapped)
