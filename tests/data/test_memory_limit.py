"""A repository with a limit for contents in memory."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dropflow.clock import SystemClock
from dropflow.data.memory import SMALL
from dropflow.data.read import read
from dropflow.data.registry import store_for
from dropflow.data.repository import MemoryLimitedRepository
from dropflow.data.store import Slot
from dropflow.engine.api import Handle
from dropflow.engine.host_memory import HostMemory, Pressure
from dropflow.graph.templates import Template

Node = Callable[..., Template]

LARGE = SMALL + 1


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[MemoryLimitedRepository]:
    """A repository for two large contents, with shared memory in a directory of its own."""
    (tmp_path / "shared").mkdir()
    clock = SystemClock()
    limit, shared = 2 * LARGE, tmp_path / "shared"
    found = MemoryLimitedRepository(tmp_path / "session", "trial", clock, shared_memory=shared, limit=limit)
    yield found
    found.close()


def _committed(repository: MemoryLimitedRepository, template: Template, drop: int, size: int) -> Handle:
    part = store_for(template).part(Slot(repository.workspace, "g_k_0", drop, 1, 0, 0.0, ""))
    part.write(b"x" * size)
    return repository.commit(drop, 1, template, part.finish())


def _is_shared(repository: MemoryLimitedRepository, handle: Handle) -> bool:
    return Path(handle.location).parent == repository.workspace.shared


def test_contents_above_the_limit_are_on_the_disk(limited: MemoryLimitedRepository, node: Node) -> None:
    """When memory is full, writers and commits put contents to the disk, until some of it is released."""
    template = node("dlg.data.drops.memory.InMemoryDROP")
    first, second, third = (_committed(limited, template, drop, LARGE) for drop in range(3))

    assert _is_shared(limited, first)
    assert _is_shared(limited, second)
    assert not _is_shared(limited, third)
    assert limited.held == 2 * LARGE
    small = _committed(limited, template, 4, SMALL)
    assert (small.kind, small.body, Path(small.location).parent) == ("shm", b"", limited.workspace.tmp)
    assert read(third) == b"x" * LARGE
    assert read(small) == b"x" * SMALL
    assert _committed(limited, template, 5, 100).kind == "bytes"

    assert limited.release(0, template, first)
    assert _is_shared(limited, _committed(limited, template, 6, LARGE))
    assert limited.release(2, template, third)
    assert not Path(third.location).exists()
    assert limited.held == 2 * LARGE


def test_results_and_lost_commits_do_not_count(limited: MemoryLimitedRepository, node: Node) -> None:
    """What is moved to the results, or removed, leaves room."""
    template = node("dlg.data.drops.memory.InMemoryDROP")
    first, second = (_committed(limited, template, drop, LARGE) for drop in range(2))
    result = limited.keep_result(0, "g_k_0", template, first)
    limited.revoke(1, second)

    assert read(result) == b"x" * LARGE
    assert limited.held == 0
    assert _is_shared(limited, _committed(limited, template, 2, LARGE))


@pytest.mark.parametrize("pressure", [Pressure.CONTENTS, Pressure.ATTEMPTS])
def test_large_contents_go_to_the_disk_while_most_memory_is_in_use(
    limited: MemoryLimitedRepository, node: Node, pressure: Pressure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever uses the memory: the processes, the contents, or others."""
    template = node("dlg.data.drops.memory.InMemoryDROP")
    with monkeypatch.context() as patched:
        patched.setattr(HostMemory, "pressure", lambda _: pressure)
        content = _committed(limited, template, 0, LARGE)

    assert not _is_shared(limited, content)
    assert read(content) == b"x" * LARGE
    assert _is_shared(limited, _committed(limited, template, 1, LARGE))
