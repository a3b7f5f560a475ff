"""A simulated network: connections between processes, with delays and faults drawn from a seed."""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import msgspec

from managers.links.packing import Frames
from managers.messages import Chunk, ContentGone, Fetch, FetchFailed, decode_packet
from managers.simulation.virtual_time import SimulatedProcess, Simulation

_DATA = Fetch | Chunk | ContentGone | FetchFailed
_TCP_SECONDS = 5.0
"""After which a connection is broken whose packets do not arrive."""


class Endpoint(Protocol):
    """The links of one process, as the network sees them."""

    name: str
    address: str
    process: SimulatedProcess

    def packet_from_client(self, route: bytes, frames: Frames) -> None:
        """Handle a packet that arrived at the listening end."""
        ...

    def packet_from_server(self, peer: str, generation: int, frames: Frames) -> None:
        """Handle a packet that arrived on the connection to `peer`."""
        ...

    def connection_lost(self, peer: str, generation: int, why: str) -> None:
        """Handle the loss of the connection to `peer`."""
        ...

    def is_settled(self) -> bool:
        """Return whether everything that was sent has been acknowledged."""
        ...


class NetworkFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Delays in seconds, and chances of faults for each packet.

    TCP neither loses nor reorders within a connection; this network does, to test the numbered stream, which relies on
    nothing. The data plane relies on TCP, so its packets can be duplicated and their connection cut, but no more.

    Attributes
    ----------
    delay, jitter : float
        A packet takes between `delay` and `delay + jitter`.
    lose, duplicate, reorder, cut : float
        Chances that a packet is lost, arrives twice, may overtake others, or arrives never because its connection is
        cut.
    """

    delay: float = 0.0002
    jitter: float = 0.0003
    lose: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    cut: float = 0.0


class _Direction:
    """One direction of a connection; `last` is when its last packet arrives."""

    def __init__(self) -> None:
        self.last = 0.0


class _SimulatedConnection:
    """A connection from a client to a server, which is None where no process listens."""

    def __init__(self, route: bytes, client: Endpoint, peer: str, server: Endpoint | None, generation: int) -> None:
        self.route = route
        self.client = client
        self.peer = peer
        self.server = server
        self.generation = generation
        self.forward = _Direction()
        self.back = _Direction()

    def joins(self, *names: str) -> bool:
        """Return whether all these processes are its ends."""
        ends = {self.client.name, "" if self.server is None else self.server.name}
        return ends.issuperset(names)


class SimulatedNetwork:
    """The network between simulated processes.

    Parameters
    ----------
    simulation : Simulation
        Time and chance.
    faults : NetworkFaults
        Delays and faults; may be replaced at any time.
    """

    def __init__(self, simulation: Simulation, faults: NetworkFaults | None = None) -> None:
        self.simulation = simulation
        self.faults = faults or NetworkFaults()
        self._endpoints: dict[str, Endpoint] = {}
        self._connections: dict[bytes, _SimulatedConnection] = {}
        self._blocked: set[tuple[str, str]] = set()
        self.late: dict[tuple[str, str], float] = {}
        """Additional seconds of packets, by names of sender and receiver."""
        self.dark: set[str] = set()
        """Processes that crashed with their hosts: nothing there refuses connections."""
        self._routes = itertools.count(1)
        self._ports = itertools.count(1)

    def __repr__(self) -> str:
        return f"SimulatedNetwork({self.simulation!r}, {self.faults})"

    @property
    def names(self) -> list[str]:
        """Names of the processes, in the order in which they joined."""
        return list(self._endpoints)

    def new_address(self, name: str) -> str:
        """Return an address for a new process."""
        return f"tcp://{name}:{next(self._ports)}"

    def join(self, endpoint: Endpoint) -> None:
        """Add a process."""
        self._endpoints[endpoint.name] = endpoint

    def leave(self, endpoint: Endpoint) -> None:
        """Remove a process that has ended; its peers lose their connections."""
        if self._endpoints.get(endpoint.name) is endpoint:
            del self._endpoints[endpoint.name]
            self.cut(endpoint.name)

    def cut(self, *names: str) -> None:
        """Cut the connections that all of these processes are ends of; what is in flight is lost."""
        for connection in [connection for connection in self._connections.values() if connection.joins(*names)]:
            self._break(connection, "the connection was closed")

    def block(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Drop all packets between two processes, or those from `a` to `b`, without an error, until `unblock`."""
        self._blocked.update([(a, b)] if one_way else [(a, b), (b, a)])

    def unblock(self, a: str, b: str) -> None:
        """Undo `block`."""
        self._blocked -= {(a, b), (b, a)}

    def separate(self, apart: Sequence[str], others: Sequence[str], seconds: float) -> None:
        """Block two groups of processes from each other for a while."""
        for a in apart:
            for b in others:
                self.block(a, b)
                self.simulation.call_later(seconds, partial(self.unblock, a, b))

    def is_blocked(self, sender: str, receiver: str) -> bool:
        """Return whether packets from one process to another are dropped."""
        return (sender, receiver) in self._blocked

    def refuses(self, client: str, name: str, address: str) -> bool:
        """Return whether the host of a process refuses a connection: it answers, and no process listens there."""
        is_reached = not self.is_blocked(client, name) and not self.is_blocked(name, client)
        is_listening = any(endpoint.address == address for endpoint in self._endpoints.values())
        return is_reached and name not in self.dark and not is_listening

    def is_settled(self) -> bool:
        """Return whether all messages have arrived."""
        return all(endpoint.is_settled() for endpoint in self._endpoints.values())

    def run(self) -> None:
        """Let events happen until all messages have arrived."""
        self.simulation.run(self.is_settled)

    # For the transports of the processes.

    def open(self, client: Endpoint, peer: str, generation: int, address: str) -> bytes:
        """Open a connection; return its route."""
        server = next((endpoint for endpoint in self._endpoints.values() if endpoint.address == address), None)
        route = b"route-%d" % next(self._routes)
        connection = self._connections[route] = _SimulatedConnection(route, client, peer, server, generation)
        self.simulation.record(f"open {client.name} {peer} {generation} {address}")
        if server is None:
            self.simulation.call_later(self.delay(), lambda: self._break(connection, "no process answers there"))
        return route

    def close(self, route: bytes) -> None:
        """Close a connection; what is in flight is lost."""
        self._connections.pop(route, None)

    def send_to_server(self, route: bytes, frames: Frames) -> bool:
        """Send from the client; return whether the connection exists."""
        connection = self._connections.get(route)
        if connection is not None and connection.server is not None:
            self._send(connection, connection.forward, frames)
        return connection is not None

    def send_to_client(self, route: bytes, frames: Frames) -> bool:
        """Send from the server; return whether the connection exists."""
        connection = self._connections.get(route)
        if connection is not None:
            self._send(connection, connection.back, frames)
        return connection is not None

    def _send(self, connection: _SimulatedConnection, direction: _Direction, frames: Frames) -> None:
        draw, faults = self.simulation.random.random, self.faults
        is_data = isinstance(decode_packet(frames[0]), _DATA)
        # What arrives is a copy: another process does not share the sender's memory.
        copies = tuple(bytes(frame) for frame in frames)
        if draw() < faults.cut:
            self.simulation.call_later(self.delay(), lambda: self._break(connection, "the connection was closed"))
            return
        if draw() < faults.lose and not is_data:
            self.simulation.record(f"lose {connection.route.decode()}")
            return
        for _ in range(2 if draw() < faults.duplicate else 1):
            may_overtake = draw() < faults.reorder and not is_data
            arrival = self.simulation.time + self.delay() + self._lateness(connection, direction)
            if not may_overtake:
                arrival = direction.last = max(arrival, direction.last)
            self.simulation.call_at(arrival, lambda: self._arrive(connection, direction, copies))

    def delay(self) -> float:
        """Draw how many seconds a packet takes."""
        return self.faults.delay + self.simulation.random.random() * self.faults.jitter

    def _lateness(self, connection: _SimulatedConnection, direction: _Direction) -> float:
        if not self.late or connection.server is None:
            return 0.0
        ends = connection.client.name, connection.server.name
        return self.late.get(ends if direction is connection.forward else ends[::-1], 0.0)

    def _arrive(self, connection: _SimulatedConnection, direction: _Direction, frames: Frames) -> None:
        client, server = connection.client, connection.server
        if self._connections.get(connection.route) is not connection or server is None:
            return
        is_forward = direction is connection.forward
        sender, receiver = (client, server) if is_forward else (server, client)
        if self.is_blocked(sender.name, receiver.name):
            if isinstance(decode_packet(frames[0]), _DATA):
                # TCP loses nothing within a connection that lasts.
                self.simulation.call_later(_TCP_SECONDS, lambda: self._break(connection, "it timed out"))
            return
        process = receiver.process
        size = sum(map(len, frames))
        self.simulation.record(f"packet {connection.route.decode()} {'>' if is_forward else '<'} {size}")
        if is_forward:
            process.call_later(0.0, lambda: server.packet_from_client(connection.route, frames))
        else:
            process.call_later(0.0, lambda: client.packet_from_server(connection.peer, connection.generation, frames))

    def _break(self, connection: _SimulatedConnection, why: str) -> None:
        if self._connections.pop(connection.route, None) is not None:
            client = connection.client
            self.simulation.record(f"break {connection.route.decode()} {why}")
            client.process.call_later(0.0, lambda: client.connection_lost(connection.peer, connection.generation, why))
