"""The children of a composite, which of them are alive, and which are asked: a state machine without I/O.

Each child is asked for its status once per period, with one request at a time. `managers.membership` decides from the
time of the last answer whether the child is alive, suspect or lost. A child that missed the deadline of another request
is silent: it gets no more requests until it answers a status request that was sent later.

Only the clock of this process counts, and only while the process runs (`managers.machine_calls`). Which process of a
child is the latest follows from the order of its answers: there is one process at an address at a time.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf, nextafter
from typing import Generic, Literal, TypeVar

import msgspec

from dropflow.api.addresses import http_parts
from dropflow.api.node_records import Child, ManagerInfo, ManagerStatus, NodeInfo, Role
from dropflow.errors import NotFoundError, UsageError
from managers.membership import Join, Leave, Membership, MemberState, Received, Tick
from managers.uptime import Uptime

Key = TypeVar("Key")
Value = TypeVar("Value")
_AGAIN = 30.0
"""Seconds until a failed request or change is tried again."""
_MOST_TRIES = 3
"""Attempts for one key; after them it is not tried again."""
_MOST_TRIED_KEYS = 10_000
"""Keys whose attempts are remembered; the oldest ones are forgotten first."""
DRAINED = "was drained, and has ended"
"""Text that is shown about a node that was drained, until it is started again or removed."""
_STATES: dict[MemberState, Literal["alive", "suspect", "lost"]] = {
    MemberState.JOINED: "suspect",
    MemberState.ALIVE: "alive",
    MemberState.SUSPECT: "suspect",
    MemberState.LOST: "lost",
    MemberState.LEFT: "lost",
}
_ALLOWED: dict[Role, tuple[Role, ...]] = {"island": ("node",), "master": ("island", "node")}
_LOST_PERIODS = 5
"""Number of periods between two status requests to a child that is lost."""
_MOST_HANGING = 8
"""Most unanswered status requests at a time to children that do not answer, so that they do not take all threads."""


# The time of a composite's state machine, and tables that forget old entries.


class Newest(dict[Key, Value]):
    """A dict of at most `most` entries: it forgets the entry that was set first."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: Key, value: Value) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > self._most:
            del self[next(iter(self))]


class Tries(Generic[Key]):
    """Counts how often each key was tried, and when it may be tried again."""

    def __init__(self, time: "MachineTime") -> None:
        self._time = time
        self._noted = Newest[Key, tuple[int, float]](_MOST_TRIED_KEYS)

    def may(self, key: Key) -> bool:
        """Return whether `key` may be tried now."""
        count, not_before = self._noted.get(key, (0, 0.0))
        return count < _MOST_TRIES and not_before <= self._time.now

    def note(self, key: Key) -> None:
        """Note that `key` is tried now."""
        self._noted[key] = self._noted.get(key, (0, 0.0))[0] + 1, self._time.now + _AGAIN


class MachineTime:
    """The times of the event that is handled.

    Deadlines count time in which the process ran (`managers.machine_calls`): after a pause of this process, no child
    is late.

    Parameters
    ----------
    offset : float
        Seconds since the epoch minus the monotonic time.
    period : float
        Longest gap between two events, in seconds, that counts as time in which the process ran.
    """

    def __init__(self, *, offset: float, period: float) -> None:
        self._offset = offset
        self._period = period
        self._uptime: Uptime | None = None
        self.raw = 0.0
        """The monotonic time."""
        self.now = 0.0
        """The monotonic time without pauses of this process."""

    @property
    def wall(self) -> float:
        """Seconds since the epoch."""
        return self.raw + self._offset

    def read(self, raw: float) -> None:
        """Set the time to monotonic time `raw`."""
        if self._uptime is None:
            self._uptime = Uptime(self._period, raw)
        self.raw = max(self.raw, raw)
        self.now = self._uptime.read(raw)

    def until(self, deadline: float) -> float:
        """Return the monotonic time at which `now` will be `deadline` if this process does not pause."""
        moment = self.raw + (deadline - self.now)
        # Rounding must not give the present time: on a clock that does not move, `now` would never reach the deadline.
        return moment if deadline <= self.now else max(moment, nextafter(self.raw, inf))


@dataclass(frozen=True)
class ChildView:
    """A child at one moment.

    Attributes
    ----------
    text : str
        Why it is not alive, or not asked; empty if it is alive and asked.
    is_asked : bool
        Whether requests are sent to it: it answers, and can be a child.
    is_unfit : bool
        Whether it is a manager that cannot be a child here, or that is a child under another address already.
    nodes : tuple of NodeInfo
        The nodes at or below it, from its last answer.
    """

    url: str
    name: str
    role: Role
    state: Literal["alive", "suspect", "lost"]
    text: str
    is_asked: bool
    is_unfit: bool
    nodes: tuple[NodeInfo, ...]

    @property
    def is_lost(self) -> bool:
        """Whether it has not answered for so long that requests do not wait for it."""
        return self.state == "lost"

    @property
    def is_drained(self) -> bool:
        """Whether it is a node that was drained, and has ended."""
        return self.role == "node" and self.state != "alive" and any(node.state == "drained" for node in self.nodes)

    def as_child(self) -> Child:
        """Return its record for parents and pages."""
        if self.is_drained:
            return Child(name=self.name, url=self.url, role=self.role, state="drained", text=DRAINED)
        return Child(name=self.name, url=self.url, role=self.role, state=self.state, text=self.text)


class StatusRequest(msgspec.Struct, frozen=True):
    """A status request that is to be sent to a child now.

    Attributes
    ----------
    key : int
        Identifies the child: a child that was removed and added again has another key.
    number : int
        Counts the status requests to this child.
    seconds : float
        Seconds to wait for the answer.
    """

    url: str
    key: int
    number: int
    seconds: float


@dataclass(eq=False)
class _ChildState:
    """One child."""

    url: str
    key: int
    role: Role
    due: float
    """Time at which the next status request is to be sent."""
    info: ManagerInfo | None = None
    process: int = 0
    """Number of processes that have answered at its address."""
    nodes: tuple[NodeInfo, ...] = ()
    signs: int = 0
    """Number of status requests that it has answered."""
    asked: int = 0
    """Number of the last status request."""
    settled: int = 0
    """Number of the last status request with an answer or an error."""
    is_waited_for: bool = True
    """Whether the first requests of users wait for its first answer."""
    silent_since: int | None = None
    """Number of the last status request before it missed a deadline; None if it is not silent."""
    reason: str = ""
    unfit: str = ""
    departure: str = ""
    """Why it is not expected to come back; empty if it is."""

    @property
    def is_under_way(self) -> bool:
        return self.settled < self.asked


class Children:
    """The children of one composite.

    Parameters
    ----------
    name, role : str
        Name and role of the island or master.
    time : MachineTime
        The time of the event that is handled.
    suspect_after, lost_after, every : float
        Seconds without an answer after which a child is suspect, and lost, see `managers.membership`; and seconds
        between two status requests.
    log : callable
        Takes a line for the log when a child is suspect, lost, alive again, or was started again.
    """

    def __init__(
        self,
        name: str,
        role: Role,
        time: MachineTime,
        *,
        suspect_after: float,
        lost_after: float,
        every: float,
        log: Callable[[str], None],
    ) -> None:
        self._name = name
        self._role: Role = role
        self._time = time
        self._suspect_after = suspect_after
        self._lost_after = lost_after
        self._every = every
        self._log = log
        self._children: dict[str, _ChildState] = {}
        self._membership = Membership(suspect_after=suspect_after, lost_after=lost_after)
        self._keys = 0
        self.changes = 0
        """Counter that grows when a view may have changed."""
        self._views: tuple[ChildView, ...] | None = None
        """The views at the time `_viewed`; None if one may have changed since."""
        self._viewed = -inf

    # The children.

    def add(self, url: str) -> None:
        """Add the manager at `url`; no effect if it is a child already.

        Raises
        ------
        UsageError
            It is not the URL of a manager.
        """
        address = canonical(url)
        known = self._children.get(address)
        if known is not None:
            known.departure = ""
            return
        self._keys += 1
        self._children[address] = _ChildState(address, self._keys, _ALLOWED[self._role][0], self._time.now)
        self._membership.handle(Join(address, 0, address), self._time.now)
        self._note_change()

    def remove(self, url: str) -> str:
        """Remove a child and return its address.

        Raises
        ------
        NotFoundError
            It is not a child.
        """
        address = canonical(url)
        if self._children.pop(address, None) is None:
            raise _not_a_child(url, self._name)
        member = self._membership.members[address]
        self._membership.handle(Leave(address, member.incarnation, "removed"), self._time.now)
        self._membership.forget(address)
        self._note_change()
        return address

    def mark_departed(self, url: str, reason: str) -> None:
        """Note that this child is not announced any more: it may be removed once it is lost."""
        child = self._children.get(canonical(url))
        if child is not None:
            child.departure = reason

    def departed(self) -> list[ChildView]:
        """Return the children that are lost and not announced any more."""
        leaving = {url for url, child in self._children.items() if child.departure}
        return [view for view in self.views() if view.url in leaving and view.is_lost] if leaving else []

    # Their status.

    def due(self) -> list[StatusRequest]:
        """Return the status requests to send now."""
        requests = []
        hanging = sum(child.is_under_way and not self._is_alive(child) for child in self._children.values())
        for child in sorted(self._children.values(), key=lambda child: child.due):
            if child.due > self._time.now or child.is_under_way:
                continue
            is_alive = self._is_alive(child)
            if not is_alive:
                if hanging >= _MOST_HANGING:
                    child.due = self._time.now + self._every
                    continue
                hanging += 1
            child.asked += 1
            child.due = self._time.now + self._every
            seconds = self._suspect_after if is_alive else self._lost_after
            requests.append(StatusRequest(child.url, child.key, child.asked, seconds))
        return requests

    def update_nodes(self, url: str, nodes: tuple[NodeInfo, ...]) -> None:
        """Store the nodes that a child reported between two statuses."""
        child = self._children.get(url)
        if child is not None and not child.unfit:
            child.nodes = nodes
            self._note_change()

    def answered(self, request: StatusRequest, status: ManagerStatus) -> ChildView | None:
        """Store the status of a child, and return the child if requests may be sent to it."""
        child = self._settled(request)
        if child is None:
            return None
        info = status.info
        self._note_change()
        event = "" if self._is_alive(child) else "is alive"
        if child.info is None or _process(child.info) != _process(info):
            child.process += 1
            event = "was started again" if child.info is not None else event
        if event:
            self._log(f"{info.role} {info.name} {event}")
        is_fit = info.role in _ALLOWED[self._role]
        child.signs += 1
        child.info, child.role = info, info.role
        child.unfit = "" if is_fit else f"is a {info.role}, which cannot be a child of {_article(self._role)}"
        child.nodes = status.nodes if is_fit else ()
        self._membership.handle(Join(child.url, child.process, child.url), self._time.now)
        self._membership.handle(Received(child.url, child.process), self._time.now)
        if child.silent_since is not None and child.silent_since < request.number:
            child.silent_since = None
        if child.silent_since is None:
            child.reason = ""
        view = self.view(child.url)
        return view if view.is_asked else None

    def unanswered(self, request: StatusRequest, reason: str) -> None:
        """Record that a status request failed."""
        child = self._settled(request)
        if child is None:
            return
        child.reason = reason
        if child.silent_since is None:
            child.silent_since = child.asked
        if self._membership.members[child.url].state is MemberState.LOST:
            child.due = self._time.now + _LOST_PERIODS * self._every

    def silence(self, url: str, reason: str) -> None:
        """Send no requests to this child, which missed a deadline, until it answers a status request."""
        child = self._children.get(url)
        if child is not None and child.silent_since is None:
            child.silent_since, child.reason = child.asked, reason
            self._note_change()

    def ask_again(self) -> dict[str, int]:
        """Make status requests due for children that do not answer; return the number of the last request to each.

        A child that was just started again answers at once. If its process has ended, the connection is refused at
        once.
        """
        numbers = {}
        for child in self._children.values():
            is_alive = self._membership.members[child.url].state is MemberState.ALIVE
            if not child.unfit and (child.silent_since is not None or not is_alive):
                numbers[child.url] = child.asked
                child.due = self._time.now
        return numbers

    def judge(self) -> None:
        """Update the states of all children for the present time."""
        if self._time.now < self._membership.deadline():
            return
        changes = self._membership.handle(Tick(), self._time.now)
        if changes:
            self._note_change()
        for change in changes:
            view = self.view(change.after.name)
            if not view.is_drained:
                self._log(f"{view.role} {view.name} is {change.after.state.value}: {view.text}")

    def deadline(self) -> float:
        """Return the time of the next status request or change of state."""
        due = [child.due for child in self._children.values() if not child.is_under_way]
        return min([*due, self._membership.deadline()])

    # Waiting for children.

    def is_settled(self) -> bool:
        """Return whether each child that requests still wait for has answered or failed once."""
        return all(child.settled or not child.is_waited_for for child in self._children.values())

    def end_waiting(self) -> None:
        """Stop waiting for the first answers of the present children."""
        for child in self._children.values():
            child.is_waited_for = False

    def has_answer_after(self, url: str, number: int) -> bool:
        """Return whether a status request after this number has an answer or an error."""
        child = self._children.get(url)
        return child is None or child.settled > number

    def is_only_silent(self, url: str) -> bool:
        """Return whether a child is silent but not lost: it may just be busy."""
        child = self._children.get(url)
        if child is None or child.unfit or child.silent_since is None:
            return False
        return self._membership.members[url].state is not MemberState.LOST

    def why_lost(self, url: str) -> str:
        """Return why a child is lost; empty if it is not lost, or not a child."""
        if url not in self._children or self._membership.members[url].state is not MemberState.LOST:
            return ""
        return self.view(url).text

    def signs(self, url: str) -> int:
        """Return how many status requests a child has answered; 0 if it is not a child."""
        child = self._children.get(url)
        return child.signs if child else 0

    # Views.

    def views(self) -> tuple[ChildView, ...]:
        """Return all children, sorted by name."""
        self.judge()
        if self._views is None or self._viewed != self._time.now:  # the text about a lost child has the time
            doubles = _doubles(self._children.values())
            views = [self._view(child, doubles.get(child.url, "")) for child in self._children.values()]
            self._views = tuple(sorted(views, key=lambda view: (view.name, view.url)))
            self._viewed = self._time.now
        return self._views

    def by_url(self) -> dict[str, ChildView]:
        """Return all children by their URLs."""
        return {view.url: view for view in self.views()}

    def view(self, url: str) -> ChildView:
        """Return one child.

        Raises
        ------
        NotFoundError
            It is not a child.
        """
        address = canonical(url)
        for view in self.views():
            if view.url == address:
                return view
        raise _not_a_child(url, self._name)

    def _view(self, child: _ChildState, double: str) -> ChildView:
        member = self._membership.members[child.url]
        state = _STATES[member.state]
        unfit = child.unfit or double
        text = unfit or child.reason
        if not text and state != "alive":
            text = "has not answered yet" if member.state is MemberState.JOINED else "does not answer"
        if state == "lost" and not unfit:
            text = f"{text} (for {self._time.now - member.last_received:.0f} s)"
        return ChildView(
            url=child.url,
            name=child.info.name if child.info else child.url,
            role=child.role,
            state=state,
            text=text,
            is_asked=not unfit
            and child.info is not None
            and child.silent_since is None
            and member.state in (MemberState.JOINED, MemberState.ALIVE),
            is_unfit=bool(unfit),
            nodes=() if unfit else child.nodes,
        )

    def _settled(self, request: StatusRequest) -> _ChildState | None:
        """Note that a request is over; return its child, or None if it was removed."""
        child = self._children.get(request.url)
        if child is None or child.key != request.key:
            return None
        child.settled = request.number
        self._note_change()
        return child

    def _note_change(self) -> None:
        self.changes += 1
        self._views = None

    def _is_alive(self, child: _ChildState) -> bool:
        return self._membership.members[child.url].state in (MemberState.JOINED, MemberState.ALIVE)


def _doubles(children: Iterable[_ChildState]) -> dict[str, str]:
    """Return the URLs at which a manager answers that is a child under another URL already, each with a text."""
    seen: dict[tuple[str, int, int], str] = {}
    doubles = {}
    for child in children:
        if child.info is None:
            continue
        first = seen.setdefault(_process(child.info), child.url)
        if first != child.url:
            doubles[child.url] = f"is the same manager as {first}"
    return doubles


def _process(info: ManagerInfo) -> tuple[str, int, int]:
    """Return the identity of a process of a manager: it differs after a restart."""
    return info.name, info.incarnation, info.process


def _article(role: Role) -> str:
    return f"an {role}" if role == "island" else f"a {role}"


def canonical(url: str) -> str:
    """Return `url` in the one spelling that identifies a child.

    Raises
    ------
    UsageError
        It is not the URL of a manager.
    """
    parts = http_parts(url.strip())
    if parts is None or parts.username or parts.query:
        raise UsageError(f"{url!r} is not a manager URL", hint="such as http://host:8000")
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def _not_a_child(url: str, parent: str) -> NotFoundError:
    return NotFoundError(f"{url} is not a child of {parent}", hint="see its list of children")


# The nodes below a composite, as its children reported them.


def nodes_of(children: Iterable[ChildView], *, role: Role) -> tuple[NodeInfo, ...]:
    """Return all nodes below, sorted by name; no node is in a better state than the child through which it is reached.

    A node that was started again at another address is reached through two children: the child that is asked counts.

    Parameters
    ----------
    children : iterable of ChildView
        The children. If a child that is a node never answered, its address is used as its name.
    role : str
        Role of the composite: a master adds the island to which each node belongs.
    """
    nodes: dict[str, NodeInfo] = {}
    for view in sorted(children, key=lambda view: not view.is_asked):
        if view.is_unfit:
            continue
        reported = view.nodes or ((_node_without_answer(view),) if view.role == "node" else ())
        for node in reported:
            known = nodes.get(node.name)
            seen = _seen_through(node, view, role)
            if known is None or (known.state != "alive" and seen.state == "alive"):
                nodes[node.name] = seen
            elif view.is_asked and known.state == seen.state == "alive" and known.url != seen.url:
                text = f"another node has this name: {seen.url}"
                nodes[node.name] = msgspec.structs.replace(known, text=text)
    return tuple(sorted(nodes.values(), key=lambda node: node.name))


def children_by_node(children: Iterable[ChildView]) -> dict[str, ChildView]:
    """Return the child through which each node is reached, by name. A child that is asked comes first."""
    by_node: dict[str, ChildView] = {}
    for view in sorted(children, key=lambda view: not view.is_asked):
        for node in view.nodes:
            by_node.setdefault(node.name, view)
    return by_node


def _node_without_answer(view: ChildView) -> NodeInfo:
    return NodeInfo(name=view.name, url=view.url, state=view.state, text=view.text)


def _seen_through(node: NodeInfo, view: ChildView, role: Role) -> NodeInfo:
    island = view.name if role == "master" and view.role == "island" else node.island
    if view.state == "alive":
        return msgspec.structs.replace(node, island=island)
    if view.is_drained:
        return msgspec.structs.replace(node, island=island, state="drained", text=DRAINED)
    if view.role == "island":
        # The island does not answer. Its nodes may be alive, but nothing can be deployed to them through it.
        state, text = ("suspect" if node.state == "alive" else node.state), f"island {view.name} {view.text}"
    else:
        state, text = view.state, view.text
    return msgspec.structs.replace(node, island=island, state=state, text=text)
