"""Fixtures of the data tests: a repository, and slots for parts."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dropflow.clock import SystemClock
from dropflow.data.repository import LocalRepository
from dropflow.data.store import Slot
from dropflow.graph.templates import Argument, Kind, Template


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[LocalRepository]:
    """A repository of a fresh session."""
    found = LocalRepository(tmp_path / "session", "trial", SystemClock())
    yield found
    found.close()


@pytest.fixture
def slot(repository: LocalRepository) -> Callable[..., Slot]:
    """Return a function that makes slots of that session, each for a different drop by default."""
    drops = iter(range(1, 1000))

    def make(oid: str = "g_k_0", *, drop: int | None = None, attempt: int = 1, name: str = "") -> Slot:
        return Slot(repository.workspace, oid, next(drops) if drop is None else drop, attempt, 0, 0.0, name)

    return make


@pytest.fixture
def node() -> Callable[..., Template]:
    """Return a function that makes data nodes. A field is a value or an `Argument`."""

    def make(component: str = "", /, *, category: str = "", persist: bool | None = None, **fields: Any) -> Template:
        arguments = tuple(
            value if isinstance(value, Argument) else Argument(name=name, value=value) for name, value in fields.items()
        )
        return Template(
            key="k",
            name="the data",
            kind=Kind.DATA,
            component=component,
            category=category,
            persist=persist,
            arguments=arguments,
        )

    return make
