"""The fake network under `memory`: one thread, a clock of its own, and faults drawn from a seed."""

import itertools
import math
import random
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from dropflow.errors import InternalError
from managers.links.link_manager import LinkManager
from managers.links.wire import Frames
from managers.messages import Chunk, ContentGone, Fetch, FetchFailed, decode_packet

__all__ = ["PATIENCE", "Faults", "Node", "SimulatedNetwork"]

PATIENCE = 100_000
"""Steps after which a network that does not come to rest is a bug."""


class Node(Protocol):
    """A process of the network."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def address(self) -> str:
        """Where it listens."""
        ...

    @property
    def board(self) -> LinkManager:
        """Its links."""
        ...


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """How bad the network is: the chance of a packet to be lost, doubled, overtaken, or to take its line along.

    Worse than TCP, which neither loses nor reorders within a line. The data plane relies on that, so its packets
    are only cut off; the numbered stream relies on nothing.
    """

    lose: float = 0.0
    double: float = 0.0
    overtake: float = 0.0
    cut: float = 0.0


class _Line:
    """One line, from the end that dialled to the end that listens."""

    def __init__(self, route: bytes, dialler: Node, peer: str, listener: Node | None, generation: int) -> None:
        self.route = route
        self.dialler = dialler
        self.peer = peer
        self.listener = listener
        self.generation = generation
        self.there: deque[Frames] = deque()
        self.back: deque[Frames] = deque()


class SimulatedNetwork:
    """A network of processes that are none, with a clock of its own.

    Parameters
    ----------
    seed : int
        Everything that happens is drawn from it; `repr` shows it.
    faults : Faults
        How bad the network is; may be replaced at any time.
    """

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.seed = seed
        self.faults = faults or Faults()
        self.time = 0.0
        self.down: set[frozenset[str]] = set()
        self._random = random.Random(seed)  # noqa: S311 - a fake network, not a secret
        self._nodes: dict[str, Node] = {}
        self._lines: dict[bytes, _Line] = {}
        self._routes = itertools.count(1)
        self._ports = itertools.count(1)

    def __repr__(self) -> str:
        return f"SimulatedNetwork(seed={self.seed}, time={self.time:g}, faults={self.faults})"

    def now(self) -> float:
        """Seconds since the network began; also `monotonic`."""
        return self.time

    monotonic = now

    def cut(self, a: str, b: str) -> None:
        """Break all lines between two processes; what is on its way is lost, and both ends hear of it."""
        for line in [line for line in self._lines.values() if _between(line, a, b)]:
            self._break(line, "the connection was closed")

    def set_down(self, a: str, b: str, *, down: bool = True) -> None:
        """Swallow all packets between two processes without a word, or stop doing so."""
        (self.down.add if down else self.down.discard)(frozenset((a, b)))

    def step(self) -> bool:
        """Let one thing happen; whether there was anything but waiting for the next heartbeat."""
        loaded = [(line, queue) for line in self._lines.values() for queue in (line.there, line.back) if queue]
        if loaded:
            self._carry(*self._random.choice(loaded))
            return True
        due = min((node.board.due for node in self._nodes.values()), default=math.inf)
        if due == math.inf:
            return False
        busy = not self.is_settled()
        self.time = max(self.time, due)
        for node in list(self._nodes.values()):
            node.board.tick(self.time)
        return busy

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Step until `until` holds, or, without it, until all messages have arrived.

        Raises
        ------
        InternalError
            That does not happen.
        """
        done = until or self.is_settled
        for _ in range(PATIENCE):
            if done():
                return
            self.step()
        raise InternalError(f"{self!r} does not come to rest")

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        end = self.time + seconds
        for _ in range(PATIENCE):
            due = min((node.board.due for node in self._nodes.values()), default=math.inf)
            if due > end and not any(line.there or line.back for line in self._lines.values()):
                self.time = end
                return
            self.step()
        raise InternalError(f"{self!r} does not come to rest")

    def is_settled(self) -> bool:
        """Whether all messages have arrived and been acknowledged."""
        return all(node.board.is_settled() for node in self._nodes.values())

    # What memory links ask of the network.

    def address(self, name: str) -> str:
        """An address for a process, another one each time."""
        return f"memory://{name}:{next(self._ports)}"

    def join(self, node: Node) -> None:
        """Take in a process, in place of any of that name."""
        self.leave(node.name)
        self._nodes[node.name] = node

    def leave(self, name: str) -> None:
        """Remove a process, as if it were killed."""
        if self._nodes.pop(name, None) is not None:
            for line in [line for line in self._lines.values() if _between(line, name)]:
                self._break(line, "the connection was closed")

    def open_connection(self, dialler: Node, peer: str, generation: int, address: str) -> bytes:
        """Open a line; its route."""
        listener = next((node for node in self._nodes.values() if node.address == address), None)
        route = b"route-%d" % next(self._routes)
        self._lines[route] = line = _Line(route, dialler, peer, listener, generation)
        if listener is None:
            line.back.append(())
        return route

    def close_connection(self, route: bytes) -> None:
        """Close a line; what is on its way is lost."""
        self._lines.pop(route, None)

    def send(self, route: bytes, frames: Frames, *, back: bool) -> bool:
        """Put frames on their way; whether the line is there."""
        line = self._lines.get(route)
        if line is not None:
            (line.back if back else line.there).append(frames)
        return line is not None

    def _carry(self, line: _Line, queue: deque[Frames]) -> None:
        draw, faults = self._random.random, self.faults
        is_stream = not any(_is_data(frames) for frames in queue)
        if draw() < faults.overtake and is_stream:
            queue.rotate(-1)
        frames = queue.popleft()
        if not frames or line.listener is None:
            self._break(line, "nobody answers there")
            return
        if draw() < faults.cut:
            self._break(line, "the connection was closed")
            return
        if frozenset((line.dialler.name, line.listener.name)) in self.down or (is_stream and draw() < faults.lose):
            return
        for _ in range(2 if draw() < faults.double else 1):
            if queue is line.there:
                line.listener.board.arrived(line.route, _copied(frames)[0], _copied(frames)[1:], self.time)
            else:
                line.dialler.board.returned(line.peer, line.generation, frames[0], _copied(frames)[1:], self.time)

    def _break(self, line: _Line, why: str) -> None:
        if self._lines.pop(line.route, None) is not None:
            line.dialler.board.broken(line.peer, line.generation, why, self.time)


def _between(line: _Line, *names: str) -> bool:
    ends = {line.dialler.name, "" if line.listener is None else line.listener.name}
    return ends.issuperset(names)


def _is_data(frames: Frames) -> bool:
    return bool(frames) and isinstance(decode_packet(frames[0]), Fetch | Chunk | ContentGone | FetchFailed)


def _copied(frames: Frames) -> Frames:
    """Frames as another process would get them: not the sender's own memory."""
    return tuple(bytes(frame) for frame in frames)
