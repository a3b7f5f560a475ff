"""A repository with a limit for contents in memory."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dropflow.clock import SystemClock
from dropflow.data import workspace
from dropflow.data.kept_content import KEPT_CONTENT, KeptContent, kept_contents_field
from dropflow.data.memory import SMALL
from dropflow.data.read import read
from dropflow.data.registry import DATA_COMPONENTS, store_for
from dropflow.data.repository import MemoryLimitedRepository
from dropflow.data.store import Slot, Store
from dropflow.data.workspace import Workspace
from dropflow.errors import BadGraphError, GoneError
from dropflow.execution.content_location import Handle
from dropflow.graph.templates import Argument, Kind, Template
from dropflow.host.memory import HostMemory, Pressure

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


# The session's directory in shared memory.


def _of_a_dead_process(root: Path) -> Path:
    script = (
        "import pathlib, sys\nfrom dropflow.data import workspace\n"
        "print(workspace.claim_shared_memory('dead', pathlib.Path(sys.argv[1])))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(root)], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


@pytest.mark.slow
def test_directories_of_ended_processes_are_removed(tmp_path: Path) -> None:
    """The directory of a session is removed if its process has ended."""
    dead, alive = _of_a_dead_process(tmp_path), workspace.claim_shared_memory("alive", tmp_path)
    assert dead.is_dir()

    assert workspace.sweep_shared_memory(tmp_path) == [dead]
    assert alive is not None
    assert [path.name for path in tmp_path.iterdir()] == [alive.name]


def test_a_reused_process_id_is_not_taken_for_the_owner(tmp_path: Path) -> None:
    """Processes with the same number are distinguished by start time."""
    mine = workspace.claim_shared_memory("mine", tmp_path)
    assert mine is not None
    pieces = mine.name.split("-", 4)
    impostor = tmp_path / "-".join([*pieces[:3], str(int(pieces[3]) - 1), pieces[4]])
    impostor.mkdir()

    assert workspace.sweep_shared_memory(tmp_path) == [impostor]


@pytest.mark.parametrize("lack", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_process_that_cannot_be_looked_up_has_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lack: int
) -> None:
    """A process without a free descriptor does not remove the contents of sessions that run."""
    alive = workspace.claim_shared_memory("alive", tmp_path)

    def read_text(*_: object, **__: object) -> str:
        raise OSError(lack, os.strerror(lack))

    monkeypatch.setattr(Path, "read_text", read_text)

    assert workspace.sweep_shared_memory(tmp_path) == []
    assert workspace.claim_shared_memory("another", tmp_path) is None
    assert list(tmp_path.iterdir()) == [alive]


def test_each_process_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search takes as long for a process with many sessions as for one with a single session."""
    seen = []
    for number in range(20):
        workspace.claim_shared_memory(f"s{number}", tmp_path)
    started = workspace._started
    monkeypatch.setattr(workspace, "_started", lambda pid: seen.append(pid) or started(pid))

    assert workspace.sweep_shared_memory(tmp_path) == []
    assert seen == [os.getpid()]


def test_directories_of_other_pid_namespaces_stay(tmp_path: Path) -> None:
    """Directories of other pid namespaces and with other names are not removed."""
    for name in ("dropflow-1-1-1-other", "dropflow-nonsense", "something-else"):
        (tmp_path / name).mkdir()

    assert workspace.sweep_shared_memory(tmp_path) == []


def test_only_the_owner_can_read_the_directory(tmp_path: Path) -> None:
    """Other users can read neither names nor contents."""
    path = workspace.claim_shared_memory("mine", tmp_path)

    assert path is not None
    assert path.stat().st_mode & 0o777 == 0o700


def test_each_repository_has_its_own_directory(tmp_path: Path) -> None:
    """Each session gets its own directory; without shared memory the result is None."""
    assert workspace.claim_shared_memory("same", tmp_path) != workspace.claim_shared_memory("same", tmp_path)
    assert workspace.claim_shared_memory("same", tmp_path / "nowhere") is None


def test_a_mapped_content_is_readable_after_its_release(tmp_path: Path) -> None:
    """A mapped content stays readable when its file is removed."""
    from dropflow.data.read import view  # noqa: PLC0415 - only here
    from dropflow.execution.content_location import Handle  # noqa: PLC0415 - only here

    path = workspace.claim_shared_memory("mine", tmp_path)
    assert path is not None
    (path / "x").write_bytes(b"hello" * 1000)
    content = view(Handle(kind="shm", location=str(path / "x")))
    workspace.release_shared_memory(path)

    assert not os.path.exists(path)  # noqa: PTH110 - text
    assert bytes(content[:5]) == b"hello"


# Data drops whose contents earlier sessions have left.


_EARLIER = KeptContent("earlier", 7, "g_x_0", "results/g_x_0.npy", 5, 9)


def _store(*arguments: Argument) -> Store:
    template = Template(
        key="x", name="x", kind=Kind.DATA, component=KEPT_CONTENT.dropclass, category="KeptContent", arguments=arguments
    )
    return store_for(template)


def _slot(sessions: Path) -> Slot:
    return Slot(Workspace(str(sessions / "later"), "later"), "g_y_0", 0, 0, 0)


def _written(path: Path, text: str = "hello") -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def test_a_content_is_read_where_it_is(tmp_path: Path) -> None:
    """The handle has the file of the earlier session, its size and its checksum."""
    path = _written(tmp_path / "earlier/results/g_x_0.npy")
    handle = _store(kept_contents_field({"g_y_0": _EARLIER})).initial(_slot(tmp_path))

    assert (handle.kind, handle.location, handle.size, handle.checksum) == ("file", str(path), 5, 9)


def test_a_copy_stands_in_for_a_content_of_another_node(tmp_path: Path) -> None:
    """It is found by the row of its drop; a file of another size is none."""
    _written(tmp_path / "earlier/results/g_x_0.npy", "hell")
    _written(tmp_path / "earlier/copies/70-tag-1.part/g_x_0")
    path = _written(tmp_path / "earlier/copies/7-tag-1.part/g_x_0")

    assert _store(kept_contents_field({"g_y_0": _EARLIER})).initial(_slot(tmp_path)).location == str(path)


def test_a_missing_content_is_named(tmp_path: Path) -> None:
    """The error has the drop, its session and what to do."""
    with pytest.raises(GoneError, match=r"the content of g_x_0 of session 'earlier' is not on this node any more"):
        _store(kept_contents_field({"g_y_0": _EARLIER})).initial(_slot(tmp_path))


@pytest.mark.parametrize(
    "content",
    [
        _EARLIER._replace(path="/etc/passwd"),
        _EARLIER._replace(path="results/../../other"),
        _EARLIER._replace(session="../earlier"),
        ("earlier", 7),
        None,
    ],
)
def test_a_content_outside_of_its_session_is_refused(tmp_path: Path, content: Any) -> None:
    """A graph names contents of sessions only, and no other files."""
    store = _store(Argument(name="contents", type="Object", value={"g_y_0": content}))
    with pytest.raises(BadGraphError, match=r"no valid content of an earlier session for drop g_y_0"):
        store.initial(_slot(tmp_path))


def test_a_node_without_contents_is_refused(tmp_path: Path) -> None:
    """The class is for programs: it is in no palette, and a node without the field is an error before anything runs."""
    assert KEPT_CONTENT not in DATA_COMPONENTS
    with pytest.raises(BadGraphError, match=r"node 'x' names no contents of earlier sessions"):
        _store().check_initial()
    with pytest.raises(BadGraphError, match=r"drop g_y_0 of 'x' has a producer"):
        _store().part(_slot(tmp_path))
