"""The machines that a plan is made for: nodes of different capacity, and the links between them.

They are equal, or from reports of managers, or from a TOML file. All errors in the file are reported at once.

::

    contention = true            # whether moves share links (default)

    [links]                      # of each node, in each direction
    bandwidth = "128 MiB/s"
    latency = "0 s"

    [links.between_islands]      # of each island, in each direction
    bandwidth = "1 Gbit/s"
    latency = "1 ms"

    [[nodes]]
    name = "a1"
    cores = 8
    speed = 1.0
    memory = "64 GiB"
    gpus = 2
    island = "a"
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dropflow.errors import BadFileError
from dropflow.failure import Problem, refuse_errors
from dropflow.formatting import BANDWIDTH, MEMORY, SECONDS, quantity
from dropflow.graph.templates import Template, needs_of
from translator.problem_codes import problem

if TYPE_CHECKING:
    from dropflow.api.node_records import NodeInfo

DEFAULT_BANDWIDTH = 128.0 * 1024 * 1024
"""Bytes per second of a link whose bandwidth is not given: about that of gigabit Ethernet."""
_LONGEST_FILE_BYTES = 16 * 1024 * 1024
"""Bytes of a file of machines."""
_MOST_CORES = 1_000_000
"""Cores of one node."""
_MOST_NODES = 100_000
"""Nodes in a file of machines."""
_MOST_GPUS = 10_000
"""GPUs of one node."""
_NODE_KEYS = ("name", "cores", "speed", "memory", "gpus", "island")
_LINK_KEYS = ("bandwidth", "latency")
_USE_STEP = 0.1
"""Use of processors is rounded to tenths, so that nodes that are idle but for noise are equal."""


class NodeCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """The capacity of a node.

    Attributes
    ----------
    name : str
        Its name, unique among the nodes of a plan.
    cores : int
        Processors, at least 1.
    speed : float
        Execution times are divided by it.
    memory : float
        Bytes for applications that declare memory; infinite if it is not limited.
    gpus : float
        GPUs, each for one application at a time; a whole number, or infinite if they are not limited.
    island : str
        Name of its data island. All nodes without a name are in one island.
    """

    name: str
    cores: int = 1
    speed: float = 1.0
    memory: float = math.inf
    gpus: float = 0
    island: str = ""


class LinkSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """The speed of links: bytes per second, and seconds before the first byte arrives."""

    bandwidth: float = DEFAULT_BANDWIDTH
    latency: float = 0.0


class Machines(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes and links.

    Attributes
    ----------
    nodes : tuple of NodeCapacity
        At least one; part k of a plan is on the k-th node.
    links : LinkSpeed
        Speed of the link of each node, in each direction.
    between_islands : LinkSpeed or None
        Speed of the link of each island to the others, in each direction; None if only the links of nodes count.
    contention : bool
        Whether moves share links. Otherwise each move has the whole bandwidth of its links, as in most papers.
    """

    nodes: tuple[NodeCapacity, ...]
    links: LinkSpeed = LinkSpeed()
    between_islands: LinkSpeed | None = None
    contention: bool = True

    @property
    def islands(self) -> tuple[str, ...]:
        """The names of the islands, in the order of their first nodes."""
        return tuple(dict.fromkeys(node.island for node in self.nodes))

    @property
    def fastest(self) -> float:
        """The largest speed of a node."""
        return max(node.speed for node in self.nodes)

    @property
    def power(self) -> float:
        """The work that all cores do in a second."""
        return sum(node.cores * node.speed for node in self.nodes)

    def first(self, count: int) -> "Machines":
        """Return these machines with their first `count` nodes only."""
        return msgspec.structs.replace(self, nodes=self.nodes[:count])

    def limited(self, dop: int, memory: float, *, least: int = 1) -> "Machines":
        """Return the nodes that the plan may use, with their shares of `dop` cores for each island.

        Parameters
        ----------
        dop : int
            Cores that the nodes of an island use together; 0 for all.
        memory : float
            Bytes that each node may use; 0 for all.
        least : int
            Cores that the largest application needs. If `dop` is too small for all nodes of an island to get as many,
            those with the most cores are used.
        """
        cores = [node.cores for node in self.nodes]
        for island in self.islands if dop else ():
            inside = [number for number, node in enumerate(self.nodes) if node.island == island]
            used = sorted(inside, key=lambda number: -cores[number])[: max(dop // least, 1)]
            shares, left = dict.fromkeys(inside, 0), dop
            for after, number in enumerate(reversed(used)):  # larger nodes get the cores that a small node lacks
                shares[number] = min(cores[number], left // (len(used) - after))
                left -= shares[number]
            for number, share in shares.items():
                cores[number] = share
        nodes = tuple(
            msgspec.structs.replace(node, cores=share, memory=min(node.memory, memory or math.inf))
            for node, share in zip(self.nodes, cores, strict=True)
            if share
        )
        return msgspec.structs.replace(self, nodes=nodes)

    def bandwidth(self, source: int, target: int) -> float:
        """Return the bytes per second of a move that does not share its links."""
        between = self.between_islands
        if between is None or self.nodes[source].island == self.nodes[target].island:
            return self.links.bandwidth
        return min(self.links.bandwidth, between.bandwidth)

    def latency(self, source: int, target: int) -> float:
        """Return the seconds before a move begins."""
        between = self.between_islands
        if between is None or self.nodes[source].island == self.nodes[target].island:
            return self.links.latency
        return between.latency


def equal_machines(count: int, *, cores: int = 1, names: Sequence[str] = ()) -> Machines:
    """Return `count` equal nodes of speed 1 without limits of memory and GPUs.

    They are called ``#0``, ``#1``... if they are not named.
    """
    given = names or tuple(f"#{number}" for number in range(count))
    return Machines(nodes=tuple(NodeCapacity(name=name, cores=cores, gpus=math.inf) for name in given))


def read_machines(path: Path) -> Machines:
    """Return the machines in a TOML file.

    Raises
    ------
    BadFileError
        The file cannot be read.
    BadGraphError
        PT010, for everything that is wrong in it.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST_FILE_BYTES + 1)
    except OSError as error:
        raise BadFileError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if len(content) > _LONGEST_FILE_BYTES:
        raise BadFileError("the file is larger than 16 MiB", where=str(path), hint="name a file that describes nodes")
    return parse_machines(content, where=str(path))


def parse_machines(content: bytes, *, where: str) -> Machines:
    """Return the machines that a TOML text describes; `where` names it in problems.

    Raises
    ------
    BadGraphError
        PT010, for everything that is wrong in it.
    """
    reader = _MachinesText(where)
    machines = reader.read(content)
    refuse_errors(reader.problems)
    return machines


class _MachinesText:
    """One text being read."""

    def __init__(self, where: str) -> None:
        self._where = where
        self.problems: list[Problem] = []

    def read(self, content: bytes) -> Machines:
        """Return the machines, with defaults in place of wrong values."""
        import tomllib  # noqa: PLC0415 - most plans are for equal machines

        try:
            document = tomllib.loads(content.decode())
        except (ValueError, RecursionError) as error:  # ValueError: also a number of 5,000 digits
            self._complain("", f"this is not TOML: {error}", "see docs/reference/machines.md for the format")
            return Machines(nodes=())
        self._refuse_others(document, ("contention", "links", "nodes"), "")
        contention = document.get("contention", True)
        if not isinstance(contention, bool):
            self._complain("contention", f"{contention!r} is neither true nor false", "write true or false")
        links = self._table(document.get("links", {}), "links")
        self._refuse_others(links, (*_LINK_KEYS, "between_islands"), "links")
        between = links.get("between_islands")
        return Machines(
            nodes=self._nodes(document.get("nodes")),
            links=self._speed(links, "links"),
            between_islands=None if between is None else self._between(between),
            contention=contention is not False,
        )

    def _between(self, given: Any) -> LinkSpeed:
        place = "links.between_islands"
        table = self._table(given, place)
        self._refuse_others(table, _LINK_KEYS, place)
        return self._speed(table, place)

    def _speed(self, table: Mapping[str, Any], place: str) -> LinkSpeed:
        positive: Callable[[float], bool] = lambda value: value > 0  # noqa: E731 - two rules beside each other
        finite: Callable[[float], bool] = lambda value: 0 <= value < math.inf  # noqa: E731
        return LinkSpeed(
            bandwidth=self._number(
                table, "bandwidth", DEFAULT_BANDWIDTH, place, units=BANDWIDTH, is_valid=positive, example='"128 MiB/s"'
            ),
            latency=self._number(table, "latency", 0.0, place, units=SECONDS, is_valid=finite, example='"10 ms"'),
        )

    def _nodes(self, given: Any) -> tuple[NodeCapacity, ...]:
        if not isinstance(given, list) or not given:
            text = "no nodes are described" if given is None or given == [] else "nodes is not a list of tables"
            self._complain("nodes", text, "write a table [[nodes]] for each node")
            return ()
        if len(given) > _MOST_NODES:
            self._complain("nodes", f"{len(given)} nodes are described", f"describe at most {_MOST_NODES} nodes")
            return ()
        nodes = [self._node(table, f"nodes[{number}]") for number, table in enumerate(given)]
        first: dict[str, int] = {}
        for number, node in enumerate(nodes):
            before = first.setdefault(node.name, number)
            if before != number and node.name:
                text = f"the name {node.name!r} is that of nodes[{before}], too"
                self._complain(f"nodes[{number}].name", text, "give each node a name of its own")
        return tuple(nodes)

    def _node(self, given: Any, place: str) -> NodeCapacity:
        table = self._table(given, place)
        self._refuse_others(table, _NODE_KEYS, place)
        usable: Callable[[float], bool] = lambda value: 0 < value < math.inf  # noqa: E731 - two rules side by side
        positive: Callable[[float], bool] = lambda value: value > 0  # noqa: E731
        return NodeCapacity(
            name=self._text(table, "name", place, needed=True),
            cores=self._count(table, "cores", place, least=1, most=_MOST_CORES),
            speed=self._number(table, "speed", 1.0, place, units={"": 1.0}, is_valid=usable, example="1.5"),
            memory=self._number(table, "memory", math.inf, place, units=MEMORY, is_valid=positive, example='"64 GiB"'),
            gpus=self._count(table, "gpus", place, least=0, most=_MOST_GPUS),
            island=self._text(table, "island", place, needed=False),
        )

    def _count(self, table: Mapping[str, Any], key: str, place: str, *, least: int, most: int) -> int:
        value = table.get(key, least)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        hint = f"give a whole number from {least} to {most}"
        self._complain(f"{place}.{key}", f"{_shown(value)} is not a number of {key}", hint)
        return least

    def _text(self, table: Mapping[str, Any], key: str, place: str, *, needed: bool) -> str:
        value = table.get(key, "")
        if not isinstance(value, str) or (needed and not value):
            text = f"{value!r} is not a name" if key in table else "the node has no name"
            self._complain(f"{place}.{key}", text, f'write {key} = "..."')
            return ""
        return value

    def _number(
        self,
        table: Mapping[str, Any],
        key: str,
        default: float,
        place: str,
        *,
        units: Mapping[str, float],
        is_valid: Callable[[float], bool],
        example: str,
    ) -> float:
        if key not in table:
            return default
        value = quantity(table[key], units)
        if value is not None and is_valid(value):
            return value
        named = ", ".join(unit for unit in units if unit)
        hint = f"write it as {key} = {example}" + (f"; units are {named}" if named else "")
        self._complain(f"{place}.{key}", f"{_shown(table[key])} is not a valid {key}", hint)
        return default

    def _table(self, given: Any, place: str) -> Mapping[str, Any]:
        if isinstance(given, Mapping):
            return given
        self._complain(place, f"{place} is not a table", f"write [{place}]")
        return {}

    def _refuse_others(self, table: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
        for key in table:
            if key not in known:
                where = f"{place}.{key}" if place else key
                self._complain(where, f"the key {key!r} is unknown", f"known keys: {', '.join(known)}")

    def _complain(self, place: str, text: str, hint: str) -> None:
        where = f"{self._where}: {place}" if place else self._where
        self.problems.append(problem("PT010", text, where=where, hint=hint))


def _shown(value: object) -> str:
    """Return a value for a message; Python refuses to write a hexadecimal number of thousands of digits."""
    return hex(value)[:60] if isinstance(value, int) and abs(value) > 2**64 else f"{value!r:.60}"


# Machines from the present reports of managers: their capacities without the part that other load takes.


class LiveMachines(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a cluster on which a plan can place drops.

    Attributes
    ----------
    nodes : tuple of NodeCapacity
        Nodes that are alive, sorted by name.
    left_out : tuple of str
        Why other nodes are left out, a text for each.
    """

    nodes: tuple[NodeCapacity, ...]
    left_out: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(node.name for node in self.nodes)

    def machines(self, count: int, templates: Iterable[Template] = ()) -> Machines:
        """Return at most `count` nodes, those with the most free capacity, sorted by name.

        If there is a node with as many GPUs as any of these templates needs, such a node is among them.
        """
        gpus = max((needs_of(template).gpus for template in templates), default=0)
        best = sorted(self.nodes, key=lambda node: (-node.cores * node.speed, node.name))
        able = next((node for node in best if node.gpus >= gpus), None)
        if able is not None and able not in best[:count]:
            best = [*best[: count - 1], able]
        return Machines(nodes=tuple(sorted(best[:count], key=lambda node: node.name)))


def live_machines(nodes: Sequence["NodeInfo"]) -> LiveMachines:
    """Return the present capacities of the nodes of a cluster.

    A node has as many cores as workers. Its speed is 1 if its host is idle. Busy processors are shared with other
    programs: if all are busy, the speed is 1/2. Node managers on one host share its processors and its free memory.
    GPUs count also while other sessions use them: applications wait for them.
    """
    alive = sorted(
        (node for node in nodes if node.state == "alive" and not node.load.is_disk_full), key=lambda node: node.name
    )
    hosts: dict[str, list[NodeInfo]] = {}
    for node in alive:
        hosts.setdefault(node.host or node.name, []).append(node)
    return LiveMachines(
        nodes=tuple(_capacity(node, hosts[node.host or node.name]) for node in alive),
        left_out=tuple(
            f"the disk of node {node.name} is full"
            if node.state == "alive"
            else f"node {node.name} is {node.state}" + (f": {node.text}" if node.text else "")
            for node in sorted(nodes, key=lambda node: node.name)
            if node.state != "alive" or node.load.is_disk_full
        ),
    )


def _capacity(node: "NodeInfo", neighbours: Sequence["NodeInfo"]) -> NodeCapacity:
    """Return the capacity of a node; `neighbours` are all nodes on its host, itself included."""
    used = sum(neighbour.load.processor for neighbour in neighbours) / len(neighbours) / 100.0
    used = min(max(round(used / _USE_STEP) * _USE_STEP, 0.0), 1.0)
    wanted = sum(_cores(neighbour) for neighbour in neighbours)
    share = min(1.0, node.load.cores / wanted) if node.load.cores else 1.0
    memory = (
        min(neighbour.load.memory_free for neighbour in neighbours) / len(neighbours) if node.load.memory else math.inf
    )
    return NodeCapacity(
        name=node.name,
        cores=_cores(node),
        speed=share / (1.0 + used),
        memory=memory,
        gpus=node.load.gpus,
        island=node.island,
    )


def _cores(node: "NodeInfo") -> int:
    return max(node.load.workers or node.load.cores, 1)
