import contextlib
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import BadFileError, BadGraphError
from dropflow.failure import Problem
from dropflow.formatting import BANDWIDTH, MEMORY, SECONDS, quantity
from translator.plan.machines import Machines, parse_machines, read_machines


def _problems(text: str) -> list[tuple[str, str]]:
    with pytest.raises(BadGraphError, match="PT010") as caught:
        parse_machines(text.encode(), where="m.toml")
    return [(one.code, one.where) for one in caught.value.problems if isinstance(one, Problem)]


def test_a_file_with_all_keys() -> None:
    """Quantities with units become bytes, bytes per second and seconds; keys that are absent have defaults."""
    machines = parse_machines(
        b"""
        [links]
        bandwidth = "128 MiB/s"
        latency = "0 s"
        [links.between_islands]
        bandwidth = "1 Gbit/s"
        latency = "10 ms"
        [[nodes]]
        name = "a"
        cores = 8
        speed = 2
        memory = "64 GiB"
        island = "x"
        [[nodes]]
        name = "b"
        """,
        where="m.toml",
    )

    first, second = machines.nodes
    assert (first.name, first.cores, first.speed, first.memory, first.island) == ("a", 8, 2.0, 64 * 2.0**30, "x")
    assert (second.cores, second.speed, second.memory, second.island) == (1, 1.0, math.inf, "")
    assert machines.links.bandwidth == 128 * 2**20
    assert machines.between_islands is not None
    assert (machines.between_islands.bandwidth, machines.between_islands.latency) == (125e6, 0.01)
    assert (machines.bandwidth(0, 1), machines.latency(0, 1)) == (125e6, 0.01)
    assert machines.contention
    assert (machines.power, machines.fastest, machines.islands) == (17.0, 2.0, ("x", ""))


def test_all_problems_are_reported_at_once() -> None:
    """Each problem names the key that is wrong."""
    found = _problems(
        """
        contention = 1
        color = "red"
        [links]
        bandwidth = "fast"
        latency = "-1 s"
        between_islands = 3
        [[nodes]]
        cores = 0
        [[nodes]]
        name = "b"
        speed = 0
        memory = "64 apples"
        [[nodes]]
        name = "b"
        size = 4
        """
    )

    assert sorted(place.removeprefix("m.toml: ") for _, place in found) == sorted(
        [
            "contention",
            "color",
            "links.bandwidth",
            "links.latency",
            "links.between_islands",
            "nodes[0].cores",
            "nodes[0].name",
            "nodes[1].speed",
            "nodes[1].memory",
            "nodes[2].size",
            "nodes[2].name",
        ]
    )


@pytest.mark.parametrize("text", ["", "nodes = []", "nodes = 3", "nodes = [3]", "links = 1", "not toml", "\udcff"])
def test_files_without_machines_are_refused(text: str) -> None:
    """A file that is not TOML or has no nodes is an error with a place, and no other exception."""
    with pytest.raises(BadGraphError, match="PT010"):
        parse_machines(text.encode(errors="surrogateescape"), where="m.toml")


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(BadFileError, match="cannot be read: No such file"):
        read_machines(tmp_path / "none.toml")


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_machines_or_an_error(content: bytes) -> None:
    """No content of a file raises another exception."""
    with contextlib.suppress(BadGraphError):
        assert isinstance(parse_machines(content, where="m.toml"), Machines)


def test_quantities() -> None:
    """Numbers are in the basic unit; texts have a unit; other values are none."""
    assert quantity("1.5 GiB", MEMORY) == 1.5 * 2**30
    assert quantity("2kB", MEMORY) == 2000
    assert quantity("8 Mbit/s", BANDWIDTH) == 1e6
    assert quantity("5 us", SECONDS) == pytest.approx(5e-6)
    assert quantity(7, MEMORY) == 7.0
    assert [quantity(value, MEMORY) for value in (True, "x", "1 s", None, [], math.nan)] == [None] * 6
