"""The thread that owns all sockets and all state of the links of one process.

Other threads queue calls and messages and wake it by an eventfd. It sleeps until a socket, the eventfd or the next
deadline wakes it.
"""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from dropflow.clock import Clock
from dropflow.errors import LinkError
from managers.links.link_driver import LinkDriver
from managers.links.link_manager import LinkManager
from managers.links.packing import Frames, OutgoingMessage
from managers.links.zmq_transport import ZmqTransport

__all__ = ["LinkLoop"]

_log = logging.getLogger(__name__)


class LinkLoop:
    """Runs a `LinkManager` over a `ZmqTransport` in a thread. Methods are for any thread.

    Parameters
    ----------
    name : str
        Of this process.
    manager : LinkManager
        Decides.
    transport : ZmqTransport
        The sockets; closed with the loop.
    clock : Clock
        Time.
    """

    def __init__(self, name: str, manager: LinkManager, transport: ZmqTransport, clock: Clock) -> None:
        self._name = name
        self._manager = manager
        self._transport = transport
        self._clock = clock
        self._calls: deque[Callable[[float], None]] = deque()
        self._messages: deque[tuple[str, OutgoingMessage]] = deque()
        self._replies: deque[tuple[bytes, Frames]] = deque()
        self._flushes: deque[Future[None]] = deque()
        self._closing = self._ended = False
        self._driver: LinkDriver
        self._thread = threading.Thread(target=self._run, name=f"links-{name}", daemon=True)

    @property
    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self._closing

    def start(self, driver: LinkDriver) -> None:
        """Start the thread; `driver` carries out what is decided."""
        self._driver = driver
        self._thread.start()

    def call(self, call: Callable[[float], None]) -> None:
        """Call `call` with the current time, in the thread."""
        self._calls.append(call)
        self._wake()

    def send(self, peer: str, item: OutgoingMessage) -> None:
        """Send a message for which there is room."""
        self._messages.append((peer, item))
        self._wake()

    def reply(self, route: bytes, frames: Frames) -> None:
        """Send to the connecting end with this route."""
        self._replies.append((route, frames))
        self._wake()

    def flush(self, timeout: float | None) -> bool:
        """Wait until everything that was sent is acknowledged; return whether it is, within `timeout` seconds."""
        done: Future[None] = Future()
        self._flushes.append(done)
        self._wake()
        if self._ended:
            return True
        try:
            done.result(timeout)
        except TimeoutError:
            return False
        return True

    def close(self) -> bool:
        """End the thread; return whether it has ended, which is not so when it calls this itself. Idempotent."""
        self._closing = True
        self._wake()
        if threading.current_thread() is self._thread:
            return False
        self._thread.join()
        return True

    def _wake(self) -> None:
        if threading.get_ident() != self._thread.ident:  # that thread looks at the queues before it sleeps
            self._transport.wake()

    # In the thread.

    def _run(self) -> None:
        try:
            while not self._closing:
                self._transport.wait(self._patience())
                now = self._clock.monotonic()
                self._take(now)  # first: what was sent to a process must not reach a successor that is met now
                for actions in self._transport.read(self._manager, now):
                    self._driver.carry_out(actions, now)
                self._take(now)
                if now >= self._manager.due:
                    self._driver.carry_out(self._manager.tick(now), now)
                flushes = len(self._flushes)  # counted first: messages that are queued later belong to later flushes
                if flushes and not self._messages and self._manager.is_settled():
                    self._end_flushes(flushes)
        except Exception:
            _log.exception("the links of %s stopped: this is a bug of dropflow", self._name)
            raise
        finally:
            self._end()

    def _patience(self) -> float | None:
        if self._calls or self._messages:
            return 0.0
        due = self._manager.due
        return None if due == math.inf else max(0.0, due - self._clock.monotonic())

    def _take(self, now: float) -> None:
        """Handle what other threads queued: calls, messages by peer, replies of the data plane."""
        while self._calls:
            self._calls.popleft()(now)
        if self._messages:
            by_peer: dict[str, list[OutgoingMessage]] = {}
            for _ in range(len(self._messages)):
                peer, item = self._messages.popleft()
                by_peer.setdefault(peer, []).append(item)
            for peer, items in by_peer.items():
                self._driver.carry_out(self._manager.send(peer, items, now), now)
        for _ in range(len(self._replies)):
            self._transport.reply(*self._replies.popleft())

    def _end_flushes(self, count: int) -> None:
        for _ in range(count):
            self._flushes.popleft().set_result(None)

    def _end(self) -> None:
        self._closing = self._ended = True
        self._transport.close()
        self._driver.fail_all(LinkError(f"the links of {self._name!r} are closed"))
        self._end_flushes(len(self._flushes))
