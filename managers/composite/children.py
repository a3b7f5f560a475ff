"""The children of a composite: who they are, how they are, and who may be asked.

Each child has a thread that asks for its health again and again, and nothing else does; whether it is alive, suspect or
lost is decided by `managers.membership` from when it last answered. A child that let somebody wait in vain is not asked
anything more until it has answered its thread again.

Only the clock of this process counts, and only while the process runs (`managers.uptime`). Which life of a child is
the latest follows from the order of its answers: there is one process at an address at a time.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from dropflow.clock import Clock
from dropflow.errors import DropflowError, NotFoundError, UsageError
from dropflow.rest.schema import Child, ManagerInfo, NodeInfo, Role, SessionInfo
from managers.api import Manager
from managers.membership import Heard, Join, Leave, Membership, MemberState, Tick
from managers.uptime import Uptime

__all__ = ["ChildView", "Children", "canonical"]

_STATES: dict[MemberState, Literal["alive", "suspect", "lost"]] = {
    MemberState.JOINED: "suspect",
    MemberState.ALIVE: "alive",
    MemberState.SUSPECT: "suspect",
    MemberState.LOST: "lost",
    MemberState.LEFT: "lost",
}
_ALLOWED: dict[Role, tuple[Role, ...]] = {"island": ("node",), "master": ("island", "node")}


@dataclass(frozen=True)
class ChildView:
    """A child at one moment.

    Attributes
    ----------
    manager : Manager
        To ask it.
    text : str
        Why it is not alive, or not asked; empty when it is.
    is_asked : bool
        Whether it is worth asking: it is neither known to be away nor a manager that cannot be a child.
    is_unfit : bool
        Whether it is a manager that cannot be a child here, or is one under another address already.
    nodes : tuple of NodeInfo
        Those at or below it, as it told last.
    """

    url: str
    name: str
    role: Role
    manager: Manager
    state: Literal["alive", "suspect", "lost"]
    text: str
    is_asked: bool
    is_unfit: bool
    nodes: tuple[NodeInfo, ...]

    @property
    def is_lost(self) -> bool:
        """Whether it has been away for so long that it is not waited for."""
        return self.state == "lost"

    def as_child(self) -> Child:
        """As parents and pages are told."""
        return Child(name=self.name, url=self.url, role=self.role, state=self.state, text=self.text)


@dataclass
class _Entry:
    """One child; guarded by the lock of `Children`."""

    url: str
    manager: Manager
    role: Role
    info: ManagerInfo | None = None
    life: int = 0
    """How many processes have answered at its address."""
    nodes: tuple[NodeInfo, ...] = ()
    signs: int = 0
    """How often it gave a sign of life."""
    asked: int = 0
    """Number of the last time its thread asked."""
    settled: int = 0
    """Number of the last question of its thread that has an outcome."""
    silent_since: int | None = None
    """Number of the last time its thread had asked when it was found silent."""
    reason: str = ""
    unfit: str = ""
    departure: str = ""
    """Why it is not expected back."""
    first: threading.Event = field(default_factory=threading.Event)
    wake: threading.Event = field(default_factory=threading.Event)
    """Set to ask at once."""
    stop: threading.Event = field(default_factory=threading.Event)


class Children:
    """The children of one composite.

    Parameters
    ----------
    name, role : str
        Of the composite itself.
    connect : callable
        Makes a client of the manager at a URL; must not block.
    clock : Clock
        For the ages of signs of life.
    suspect_after, lost_after, every : float
        Seconds: see `managers.membership`; and between two questions for health.
    heard : callable
        Gets each child that answered, all its sessions, and what `mark` said before it was asked; from the child's own
        thread.
    mark : callable
        Says where the caller is.
    changed : callable
        Told when the state of a child may have changed.
    departed : callable
        Gets each child that is lost and not expected back, again and again until it is removed.
    """

    def __init__(
        self,
        name: str,
        role: Role,
        connect: Callable[[str], Manager],
        clock: Clock,
        *,
        heard: Callable[[ChildView, tuple[SessionInfo, ...], int], None],
        mark: Callable[[], int],
        changed: Callable[[], None],
        departed: Callable[[ChildView], None],
        suspect_after: float = 3.0,
        lost_after: float = 15.0,
        every: float = 1.0,
    ) -> None:
        self._name = name
        self._role: Role = role
        self._connect = connect
        self._clock = clock
        self._heard = heard
        self._mark = mark
        self._changed = changed
        self._departed = departed
        self._every = every
        self._lock = threading.Lock()
        self._answers = threading.Condition(self._lock)
        self._entries: dict[str, _Entry] = {}
        self._membership = Membership(suspect_after=suspect_after, lost_after=lost_after)
        self._uptime = Uptime(suspect_after / 2, clock.monotonic())
        self._closed = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name=f"{name}:children", daemon=True)

    def start(self) -> None:
        """Begin to judge who is away."""
        self._ticker.start()

    def close(self) -> None:
        """Ask nobody any more. Idempotent. Threads that wait for an answer end when it comes."""
        self._closed.set()
        with self._lock:
            for entry in self._entries.values():
                entry.stop.set()
                entry.wake.set()

    def add(self, url: str) -> None:
        """Take the manager at `url` as a child; again is no error.

        Raises
        ------
        UsageError
            It is no address of a manager.
        """
        address = canonical(url)
        with self._lock:
            if address in self._entries:
                self._entries[address].departure = ""
            if address in self._entries or self._closed.is_set():
                return
            entry = _Entry(address, self._connect(address), _ALLOWED[self._role][0])
            self._entries[address] = entry
            self._membership.handle(Join(address, 0, address), self._now())
        threading.Thread(target=self._attend, args=(entry,), name=f"{self._name}:{address}", daemon=True).start()

    def remove(self, url: str) -> None:
        """Forget a child.

        Raises
        ------
        NotFoundError
            It is none.
        """
        address = canonical(url)
        with self._lock:
            entry = self._entries.pop(address, None)
            if entry is None:
                raise NotFoundError(f"{url} is no child of {self._name}", hint="see its list of children")
            entry.stop.set()
            entry.wake.set()
            member = self._membership.members[address]
            self._membership.handle(Leave(address, member.incarnation, "removed"), self._now())
            self._membership.forget(address)
        self._changed()

    def left(self, url: str, reason: str) -> None:
        """Nobody announces this child any more. Once it is lost too it may go; one that answers stays."""
        with self._lock:
            entry = self._entries.get(canonical(url))
            if entry is not None:
                entry.departure = reason

    def settle(self, seconds: float) -> None:
        """Wait until every child was asked once, for `seconds` at most; who does not answer is waited for once."""
        deadline = self._clock.monotonic() + seconds
        with self._lock:
            waiting = [entry.first for entry in self._entries.values() if not entry.first.is_set()]
        for first in waiting:
            first.wait(max(deadline - self._clock.monotonic(), 0.0))
            first.set()

    def settle_silent(self, urls: Iterable[str], seconds: float) -> None:
        """Wait until these children may be asked again, for `seconds` at most; not for those that are lost.

        Who let somebody wait in vain is mostly only busy, and shows it a moment later.
        """
        wanted = tuple(urls)
        with self._lock:
            self._answers.wait_for(lambda: not any(self._is_only_silent(url) for url in wanted), seconds)

    def ask_again(self, seconds: float) -> None:
        """Ask those that do not answer at once, not only when it is time; wait for that, for `seconds` at most.

        A child that was just started again answers; one that is gone refuses the connection as quickly.
        """
        with self._lock:
            numbers = {}
            for entry in self._entries.values():
                if not self._answers_now(entry):
                    numbers[entry.url] = entry.asked
                    entry.wake.set()
            self._answers.wait_for(lambda: not any(self._is_due(*asked) for asked in numbers.items()), seconds)

    def signs(self, url: str) -> int:
        """How many signs of life a child gave; 0 for one that is none."""
        with self._lock:
            entry = self._entries.get(url)
            return entry.signs if entry else 0

    def silence(self, url: str, reason: str) -> None:
        """Do not ask this child anything until its thread has an answer: it let somebody wait in vain."""
        with self._lock:
            entry = self._entries.get(url)
            if entry is not None and entry.silent_since is None:
                entry.silent_since, entry.reason = entry.asked, reason
        self._changed()

    def views(self) -> tuple[ChildView, ...]:
        """All children, sorted by name."""
        with self._lock:
            self._judge()
            doubles = _doubles(self._entries.values())
            found = [self._view(entry, doubles.get(entry.url, "")) for entry in self._entries.values()]
        return tuple(sorted(found, key=lambda view: (view.name, view.url)))

    def view(self, url: str) -> ChildView:
        """One child.

        Raises
        ------
        NotFoundError
            It is none.
        """
        address = canonical(url)
        for view in self.views():
            if view.url == address:
                return view
        raise NotFoundError(f"{url} is no child of {self._name}", hint="see its list of children")

    # Under the lock.

    def _view(self, entry: _Entry, double: str) -> ChildView:
        member = self._membership.members[entry.url]
        state = _STATES[member.state]
        unfit = entry.unfit or double
        text = unfit or entry.reason
        if not text and state != "alive":
            text = "has not answered yet" if member.state is MemberState.JOINED else "does not answer"
        if state == "lost" and not unfit:
            text = f"{text} (for {self._now() - member.heard:.0f} s)"
        return ChildView(
            url=entry.url,
            name=entry.info.name if entry.info else entry.url,
            role=entry.role,
            manager=entry.manager,
            state=state,
            text=text,
            is_asked=not unfit
            and entry.info is not None
            and entry.silent_since is None
            and member.state in (MemberState.JOINED, MemberState.ALIVE),
            is_unfit=bool(unfit),
            nodes=() if unfit else entry.nodes,
        )

    def _answers_now(self, entry: _Entry) -> bool:
        state = self._membership.members[entry.url].state
        return bool(entry.unfit) or (entry.silent_since is None and state is MemberState.ALIVE)

    def _is_due(self, url: str, number: int) -> bool:
        """Whether an answer to a question after this one is still to come."""
        entry = self._entries.get(url)
        return entry is not None and not entry.stop.is_set() and entry.settled <= number

    def _is_only_silent(self, url: str) -> bool:
        entry = self._entries.get(url)
        if entry is None or entry.unfit or entry.stop.is_set() or entry.silent_since is None:
            return False
        return self._membership.members[url].state is not MemberState.LOST

    def _judge(self) -> bool:
        return bool(self._membership.handle(Tick(), self._now()))

    def _now(self) -> float:
        return self._uptime.read(self._clock.monotonic())

    # Threads.

    def _tick(self) -> None:
        while not self._closed.wait(self._every):
            with self._lock:
                is_changed = self._judge()
                leaving = [url for url, entry in self._entries.items() if entry.departure]
            if is_changed:
                self._changed()
            for view in self.views() if leaving else ():
                if view.url in leaving and view.is_lost:
                    self._departed(view)

    def _attend(self, entry: _Entry) -> None:
        while not entry.stop.is_set():
            number = self._ask(entry)
            entry.first.set()
            with self._lock:
                entry.settled = number
                self._answers.notify_all()
            entry.wake.wait(self._every)
            entry.wake.clear()

    def _ask(self, entry: _Entry) -> int:
        """Ask one child for its health, and take the answer in; the number of the question."""
        with self._lock:
            entry.asked += 1
            number = entry.asked
        mark = self._mark()
        try:
            info = entry.manager.info()
            self._alive(entry, info)
            # Managers that cannot be children are asked nothing more: a ring of managers would ask for ever.
            is_fit = info.role in _ALLOWED[self._role]
            nodes = entry.manager.nodes() if is_fit else ()
            sessions = entry.manager.sessions() if is_fit else ()
        except DropflowError as error:
            self._refused(entry, error.text)
            return number
        except Exception as error:  # noqa: BLE001 - the thread must live on to ask again
            self._refused(entry, f"cannot be asked: {type(error).__name__}: {error}")
            return number
        self._answered(entry, number, nodes)
        view = next((view for view in self.views() if view.url == entry.url), None)
        if view is not None and view.is_asked:
            self._heard(view, sessions, mark)
        self._changed()
        return number

    def _refused(self, entry: _Entry, reason: str) -> None:
        with self._lock:
            entry.reason = reason
            if entry.silent_since is None:
                entry.silent_since = entry.asked
        self._changed()

    def _alive(self, entry: _Entry, info: ManagerInfo) -> None:
        """It gave a sign of life, whatever it has to tell else."""
        with self._lock:
            if entry.stop.is_set():
                return
            now = self._now()
            entry.signs += 1
            if entry.info is None or _process(entry.info) != _process(info):
                entry.life += 1
            entry.info, entry.role = info, info.role
            entry.unfit = "" if info.role in _ALLOWED[self._role] else f"is a {info.role}, which no {self._role} takes"
            self._membership.handle(Join(entry.url, entry.life, entry.url), now)
            self._membership.handle(Heard(entry.url, entry.life), now)

    def _answered(self, entry: _Entry, number: int, nodes: Sequence[NodeInfo]) -> None:
        with self._lock:
            if entry.stop.is_set():
                return
            entry.nodes = tuple(nodes)
            if entry.silent_since is not None and entry.silent_since < number:
                entry.silent_since = None
            if entry.silent_since is None:
                entry.reason = ""
                self._answers.notify_all()


def _doubles(entries: Iterable[_Entry]) -> dict[str, str]:
    """Addresses under which a child is known that is known under another one already, and why they do not count."""
    seen: dict[tuple[str, int, int], str] = {}
    found = {}
    for entry in entries:
        if entry.info is None:
            continue
        first = seen.setdefault(_process(entry.info), entry.url)
        if first != entry.url:
            found[entry.url] = f"is the same manager as {first}"
    return found


def _process(info: ManagerInfo) -> tuple[str, int, int]:
    """What tells one process of a manager from the next."""
    return info.name, info.incarnation, info.process


def canonical(url: str) -> str:
    """`url` in the one spelling under which a child is known.

    Raises
    ------
    UsageError
        It is no address of a manager.
    """
    parts = urlsplit(url.strip())
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or parts.username or parts.query:
        raise UsageError(f"{url!r} is no address of a manager", hint="such as http://host:8000")
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"
