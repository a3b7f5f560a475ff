"""A TCP proxy that delays, throttles, stalls and cuts connections, as drawn from a seed.

One thread with a selector and deadlines. What it does depends on the seed and the number of bytes that passed, not on
the wall clock, so a seed that finds a fault usually finds it again.
"""

import random
import selectors
import socket
import threading
import time
from collections import deque
from typing import Self

import msgspec

_BLOCK = 64 << 10

_HELD = 16 * _BLOCK
"""Bytes buffered per direction, about as many as a socket buffers; then the sender has to wait."""

_RETRY = 0.001
"""Seconds after which a full socket is tried again."""


class ConnectionFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Faults of connections.

    Attributes
    ----------
    cut_every : int
        A connection is reset after about this many bytes, usually in the middle of a frame; 0 for never.
    delay : float
        Longest delay of a block, seconds.
    stall : float
        Length of a stall, seconds; about one block in fifty stalls.
    rate : int
        Bytes per second in each direction of each connection; 0 for no limit.
    """

    cut_every: int = 0
    delay: float = 0.0
    stall: float = 0.0
    rate: int = 0


class _Pipe:
    """One direction of one connection: blocks, with the times before which they must not be sent."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.blocks: deque[tuple[float, bytes]] = deque()
        self.size = 0
        self.free_at = 0.0
        self.paused = False


class FaultyProxy:
    """Listens on loopback and forwards to `target`, with faults.

    Parameters
    ----------
    target : tuple of str and int
        Host and port.
    seed : int
        Of all random choices.
    faults : ConnectionFaults
        The faults.
    """

    def __init__(self, target: tuple[str, int], seed: int, faults: ConnectionFaults) -> None:
        self.cuts = 0
        self.passed = 0
        self.faults = faults
        self._target = target
        self._random = random.Random(seed)
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._stop_reader, selectors.EVENT_READ)
        self._pipes: dict[socket.socket, _Pipe] = {}
        self._left: dict[socket.socket, int] = {}
        self._thread = threading.Thread(target=self._run, name="faulty-proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut(self) -> None:
        """Reset all connections now."""
        self._stop_writer.send(b"c")

    def close(self) -> None:
        """Reset all connections and stop listening."""
        if self._thread.is_alive():
            self._stop_writer.send(b"x")
            self._thread.join()
        self._stop_writer.close()

    def _run(self) -> None:
        orders = b""
        while b"x" not in orders:
            now = time.monotonic()
            ready = {key.fileobj for key, _ in self._selector.select(self._pass_on(now))}
            if self._listener in ready:
                self._accept()
            orders = self._stop_reader.recv(16) if self._stop_reader in ready else b""
            if b"c" in orders:
                self._cut_all()
            for pipe in list(self._pipes.values()):
                if pipe.source in ready and pipe.source in self._pipes:
                    self._read(pipe)
        self._cut_all()
        for opened in (self._listener, self._stop_reader):
            opened.close()
        self._selector.close()

    def _accept(self) -> None:
        ours, _ = self._listener.accept()
        try:
            theirs = socket.create_connection(self._target, timeout=60)
        except OSError:
            ours.close()
            return
        for source, target in ((ours, theirs), (theirs, ours)):
            source.setblocking(False)
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pipes[source] = _Pipe(source, target)
            self._selector.register(source, selectors.EVENT_READ)
        every = self.faults.cut_every
        if every:
            self._left[ours] = self._left[theirs] = self._random.randrange(1, 2 * every)

    def _read(self, pipe: _Pipe) -> None:
        try:
            block = pipe.source.recv(_BLOCK)
        except BlockingIOError:
            return
        except OSError:
            self._reset(pipe)
            return
        if not block:
            self._reset(pipe)
            return
        now, faults = time.monotonic(), self.faults
        wait = self._random.uniform(0, faults.delay) + (faults.stall if self._random.random() < 1 / 50 else 0)
        start = max(now + wait, pipe.free_at)
        pipe.free_at = start + (len(block) / faults.rate if faults.rate else 0)
        pipe.blocks.append((pipe.free_at, block))
        pipe.size += len(block)
        if pipe.size > _HELD:
            self._selector.unregister(pipe.source)
            pipe.paused = True

    def _pass_on(self, now: float) -> float | None:
        """Pass on what is due; seconds until the next block is."""
        dues = []
        for pipe in list(self._pipes.values()):
            while pipe.blocks and pipe.blocks[0][0] <= now and pipe.source in self._pipes:
                _, block = pipe.blocks.popleft()
                pipe.size -= len(block)
                if not self._write(pipe, block):
                    dues.append(now + _RETRY)
                    break
            if pipe.paused and pipe.size <= _HELD and pipe.source in self._pipes:
                self._selector.register(pipe.source, selectors.EVENT_READ)
                pipe.paused = False
            if pipe.blocks:
                dues.append(pipe.blocks[0][0])
        return max(0.0, min(dues) - now) if dues else None

    def _write(self, pipe: _Pipe, block: bytes) -> bool:
        left = self._left.get(pipe.source)
        is_cut = left is not None and left <= len(block)
        wanted = block[:left] if is_cut else block
        try:
            sent = pipe.target.send(wanted)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._reset(pipe)
            return True
        self.passed += sent
        if left is not None:
            self._left[pipe.source] = left - sent
        if is_cut and sent == len(wanted):
            self.cuts += 1
            self._reset(pipe)
            return True
        if sent < len(block):
            pipe.blocks.appendleft((0.0, block[sent:]))
            pipe.size += len(block) - sent
        return sent == len(block)

    def _reset(self, pipe: _Pipe) -> None:
        for end in (pipe.source, pipe.target):
            known = self._pipes.pop(end, None)
            if known is not None:
                if not known.paused:
                    self._selector.unregister(end)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                end.close()
            self._left.pop(end, None)

    def _cut_all(self) -> None:
        while self._pipes:
            self._reset(next(iter(self._pipes.values())))
