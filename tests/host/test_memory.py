"""How much memory may be used, when it is nearly used up, and the counters of processes that the kernel has ended."""

import os
import resource
from pathlib import Path

import pytest

from dropflow.host import memory as module
from dropflow.host.memory import HostMemory, MemoryLimit, Pressure, counter_files

_MB = 1_000_000


def _host(tmp_path: Path, groups: str, *, total: int = 8000, available: int = 8000) -> Path:
    """Write what the system shows of its memory in MB, and of the groups of this process."""
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True, exist_ok=True)
    lines = (f"MemTotal: {total * _MB // 1024} kB", f"MemAvailable: {available * _MB // 1024} kB")
    (proc / "meminfo").write_text("\n".join(lines) + "\n")
    (proc / "self" / "cgroup").write_text(groups)
    return proc


def _group(folder: Path, limit: str, *, name: str = "memory.max", prefix: str = "", **used: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"{limit}\n")
    (folder / "memory.stat").write_text("".join(f"{prefix}{key} {value * _MB}\n" for key, value in used.items()))


def _pressure(proc: Path, cgroups: Path) -> Pressure:
    return HostMemory(proc, cgroups).pressure()


def test_the_limit_is_the_smallest_of_all_groups_around_this_process(tmp_path: Path) -> None:
    """Of version 2, a group far outside can have the smallest limit; the answer names it."""
    proc, cgroups = _host(tmp_path, "0::/a/b/c\n"), tmp_path / "cgroup"
    _group(cgroups / "a/b/c", "max")
    _group(cgroups / "a/b", "3000000000")
    _group(cgroups / "a", "2000000000")
    limit = HostMemory(proc, cgroups).limit

    assert limit == (2000 * _MB, "the control group a")


def test_groups_of_version_1_count(tmp_path: Path) -> None:
    """Also beside version 2, and if the group of a container is called otherwise outside of it."""
    cgroups = tmp_path / "cgroup"
    _group(cgroups / "memory", "9223372036854771712", name="memory.limit_in_bytes")
    _group(cgroups / "memory/job", "1000000000", name="memory.limit_in_bytes")
    inside = HostMemory(_host(tmp_path, "4:cpu,memory:/job\n0::/\n"), cgroups).limit
    _group(cgroups / "memory", "500000000", name="memory.limit_in_bytes")
    container = HostMemory(_host(tmp_path, "4:memory:/docker/1234\n"), cgroups).limit

    assert (inside, container.bytes) == ((1000 * _MB, "the control group memory/job"), 500 * _MB)


def test_without_groups_the_machine_is_the_limit(tmp_path: Path) -> None:
    """A group that allows more than the machine has is none."""
    cgroups = tmp_path / "cgroup"
    _group(cgroups / "a", "9000000000000")
    found = HostMemory(_host(tmp_path, "0::/a\n", available=3000), cgroups)

    assert found.limit.reason == "the machine"
    assert found.free() == pytest.approx(3000 * _MB, abs=1024)


def test_a_limit_of_processes_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that declares more than ``ulimit -v`` allows would fail."""
    soft = {resource.RLIMIT_AS: 700 * _MB, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft[kind], resource.RLIM_INFINITY))

    assert HostMemory(_host(tmp_path, ""), tmp_path / "none").limit == (700 * _MB, "ulimit -v")


@pytest.mark.parametrize(("line", "prefix", "folder"), [("0::/a", "", "a"), ("4:memory:/a", "total_", "memory/a")])
def test_first_contents_go_to_the_disk_and_then_attempts_wait(
    line: str, prefix: str, folder: str, tmp_path: Path
) -> None:
    """What processes use and what is in shared memory count in a group; cached files do not."""
    proc, cgroups = _host(tmp_path, f"{line}\n"), tmp_path / "cgroup"
    name = "memory.limit_in_bytes" if prefix else "memory.max"

    def with_used(processes: int, shared: int, files: int = 900) -> Pressure:
        used = {"inactive_anon": processes, "active_anon": shared, "inactive_file": files, "active_file": files}
        _group(cgroups / folder, "1000000000", name=name, prefix=prefix, **used)
        return _pressure(proc, cgroups)

    assert with_used(300, 200) is Pressure.LOW
    assert with_used(300, 400) is Pressure.CONTENTS
    assert with_used(500, 400) is Pressure.ATTEMPTS


def test_a_machine_that_others_use_fills_up_later(tmp_path: Path) -> None:
    """Attempts do not wait for other programs while there is a tenth of the machine's memory."""
    found = [_pressure(_host(tmp_path, "", available=left), tmp_path / "none") for left in (3000, 1200, 500)]

    assert found == [Pressure.LOW, Pressure.CONTENTS, Pressure.ATTEMPTS]


def test_memory_that_a_user_gives_counts_for_the_process_and_those_it_starts(tmp_path: Path) -> None:
    """What they use is compared with it; the limit names the option, and is none of other processes."""
    proc, cgroups = _host(tmp_path, "0::/\n"), tmp_path / "cgroup"
    low = HostMemory(proc, cgroups, given=f"{7000 * _MB} {os.getpid()}")
    full = HostMemory(proc, cgroups, given=f"1000000 {os.getpid()}")
    other = HostMemory(proc, cgroups, given="1000000 999999999")  # no such process

    assert low.limit == MemoryLimit(7000 * _MB, "--memory")
    assert 0 < low.free() < 7000 * _MB
    assert full.free() == 0
    assert [found.pressure() for found in (low, full, other)] == [Pressure.LOW, Pressure.ATTEMPTS, Pressure.LOW]


@pytest.mark.slow
def test_files_in_shared_memory_count_as_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a limit that a user gives, those of the sessions of the process, and not of sessions named like it."""
    monkeypatch.setattr(module, "_SHARED_MEMORY", tmp_path)
    mine, other = (tmp_path / f"dropflow-1-{pid}-0-session" for pid in (999999998, 999999999))
    named = tmp_path / "dropflow-1-999999999-0-a-999999998-b"
    for folder, size in ((mine, 4 * _MB), (other, 32 * _MB), (named, 32 * _MB)):
        folder.mkdir()
        (folder / "content").write_bytes(b"x" * size)
    found = HostMemory(_host(tmp_path, "0::/\n"), tmp_path / "cgroup", given=f"{100 * _MB} 999999998")

    assert found.free() == pytest.approx(96 * _MB, rel=0.01)


@pytest.mark.parametrize(
    ("line", "path"),
    [("0::/job/7", "job/7/memory.events"), ("4:cpu,memory:/job", "memory/job/memory.oom_control")],
    ids=["v2", "v1"],
)
def test_the_counters_of_both_versions_of_control_groups_are_found(line: str, path: str, tmp_path: Path) -> None:
    """The file of this process's own group is read, if there is one."""
    membership = tmp_path / "cgroup"
    membership.write_text(f"9:name=systemd:/\n{line}\n7:pids:/job\n")
    missing = counter_files(membership, tmp_path)
    counter = tmp_path / path
    counter.parent.mkdir(parents=True)
    counter.touch()

    assert missing == []
    assert counter_files(membership, tmp_path) == [counter]
    assert counter_files(tmp_path / "none", tmp_path) == []
