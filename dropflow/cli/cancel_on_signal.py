"""Cancelling the session of a command on SIGINT and SIGTERM."""

import signal
from types import FrameType
from typing import TYPE_CHECKING, Self

from dropflow.stopping import GRACE_SECONDS

if TYPE_CHECKING:
    from dropflow.engine.session import Session

__all__ = ["CancelOnSignal"]


class CancelOnSignal:
    """Cancels the session on SIGINT or SIGTERM, and raises KeyboardInterrupt on the second signal.

    Parameters
    ----------
    grace : float
        Seconds that applications have to clean up.
    """

    def __init__(self, grace: float = GRACE_SECONDS) -> None:
        self._grace = grace
        self.last = 0
        self._session: Session | None = None

    def __enter__(self) -> Self:
        self._former = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def watch(self, session: "Session") -> None:
        """Cancel this session on a signal, also on one that came before."""
        self._session = session
        if self.last:
            session.cancel(signal.Signals(self.last).name, self._grace)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.last:
            raise KeyboardInterrupt
        self.last = number
        if self._session is not None:
            self._session.cancel(signal.Signals(number).name, self._grace)
