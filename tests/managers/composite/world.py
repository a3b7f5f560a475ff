"""Composites over managers in memory, for tests."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from dropflow.api.drop_records import DropQuery
from dropflow.api.requests import SubmitQuery
from dropflow.errors import LinkError
from dropflow.graph.physical import PhysicalGraph
from managers.composite.manager import Composite
from tests.fake_manager import FakeManager
from tests.regular_graphs import fan

SUBMIT = SubmitQuery(session="s")


class RunningClock:
    """The clock of this machine, from a fixed date on; `advance` lets time pass without waiting."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._ahead = 0.0

    def now(self) -> float:
        """Seconds since the epoch."""
        return 1_800_000_000.0 + self.monotonic()

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self._began + self._ahead

    def advance(self, seconds: float) -> None:
        """Advance the time."""
        self._ahead += seconds


class Hanging:
    """A manager whose chosen methods block until they are released."""

    def __init__(self, manager: FakeManager) -> None:
        self.manager = manager
        self.hung: set[str] = set()
        self.free = threading.Event()
        self.calls: list[str] = []

    def hang(self, *methods: str) -> None:
        """Block later calls of these methods; with ``info`` also that of ``status``."""
        self.hung |= {*methods, *(["status"] if "info" in methods else [])}

    def release(self) -> None:
        """Release all blocked calls."""
        self.hung.clear()
        self.free.set()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.manager, name)

        def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append(name)
            if name in self.hung:
                self.free.wait(60)
            return method(*arguments, **options)

        return call


@dataclass
class World:
    """Managers by their address, and the composites over them."""

    clock: RunningClock = field(default_factory=RunningClock)
    managers: dict[str, Any] = field(default_factory=dict)
    opened: list[Composite] = field(default_factory=list)

    def node(self, name: str, **options: Any) -> FakeManager:
        """A node manager."""
        manager = FakeManager(name, url=f"http://{name}:8000", clock=self.clock, **options)
        self.managers[f"http://{name}:8000"] = manager
        return manager

    def hanging(self, name: str) -> Hanging:
        """A node manager that can be made to hang."""
        hanging = Hanging(self.node(name))
        self.managers[f"http://{name}:8000"] = hanging
        return hanging

    def composite(self, *names: str, role: str = "island", name: str = "island-1", **options: Any) -> Composite:
        """An island or master over managers that are there, asked for their health ten times a second."""
        made = Composite(
            name,
            role,  # type: ignore[arg-type]
            children=[f"http://{child}:8000" for child in names],
            connect=lambda url: self.managers[url],
            clock=self.clock,
            url=f"http://{name}:8000",
            **{"every": 0.05, **options},
        )
        self.managers[f"http://{name}:8000"] = made
        self.opened.append(made)
        made.open()
        made.children()
        return made

    def session_of_two(self) -> tuple[Composite, FakeManager, FakeManager]:
        """Return an island with session s on nodes n1 and n2, and the nodes."""
        one, two = self.node("n1"), self.node("n2")
        island = self.composite("n1", "n2")
        island.submit(parts(2), SUBMIT)
        return island, one, two

    def advance(self, seconds: float) -> None:
        """Advance the time in steps of a second, and run the composites in each."""
        for _ in range(round(seconds)):
            self.clock.advance(1.0)
            for composite in self.opened:
                with suppress(LinkError):  # it is closed
                    composite.status()

    def close(self) -> None:
        """Release all blocked calls and close the managers."""
        for composite in self.opened:
            composite.close()
        for manager in self.managers.values():
            if isinstance(manager, Hanging):
                manager.release()


def until(ready: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    pause = threading.Event()
    for _ in range(6000):
        if ready():
            return
        pause.wait(0.01)
    raise AssertionError("it never came true")


def parts(count: int, drops: int = 40) -> PhysicalGraph:
    """Return a fan whose drops are in `count` parts."""
    graph = fan(drops)
    return replace(graph, part=(graph.instance % count).astype("int32"))


def silence(island: Composite, node: FakeManager) -> None:
    """Make a node miss the deadline of one request."""
    node.refuse("drops", LinkError("no answer within 2 s"))
    with pytest.raises(LinkError, match="no answer within 2 s"):
        island.drops("gone", DropQuery())
    node.allow("drops")


def lose(world: World, island: Composite, name: str) -> None:
    """Keep a node silent until it is lost."""
    world.managers[f"http://{name}:8000"].refuse("info", LinkError("nothing listens there"))
    until(lambda: any(child.text for child in island.children() if child.name == name))
    world.advance(20.0)
    until(lambda: {child.name: child.state for child in island.children()}[name] == "lost")
    until(lambda: all(child.state == "alive" for child in island.children() if child.name != name))
