"""What the doctor says about what was seen."""

from collections.abc import Callable, Iterator

import msgspec
import pytest

from dropflow.cli.doctor.checks import judge
from dropflow.cli.doctor.observations import Sight
from dropflow.cli.doctor.survey import examine_cluster
from dropflow.clock import SystemClock
from dropflow.rest.client import Client
from dropflow.rest.schema import Child, Load, ManagerInfo, NodeInfo
from dropflow.testing.manager import FakeManager
from dropflow.version import __version__
from managers.service import Service


@pytest.fixture
def free_service() -> Iterator[Callable[[FakeManager], Service]]:
    """Serve managers until the test ends."""
    services: list[Service] = []

    def serve(manager: FakeManager) -> Service:
        services.append(Service(manager, token="t"))  # noqa: S106
        services[-1].start()
        return services[-1]

    yield serve
    for service in services:
        service.close()


def info(name: str, role: str = "node", **other: object) -> ManagerInfo:
    """A manager in good health."""
    fields = {
        "name": name,
        "role": role,
        "url": f"http://{name}:1",
        "version": __version__,
        "host": name,
        "process": 1,
        "incarnation": 1,
        "started": 0.0,
        "time": 0.0,
        "protocol": 1,
        "key": "aaaa",
    }
    return msgspec.convert(fields | other, ManagerInfo)


def sight(name: str, role: str = "node", *, said: dict[str, object] | None = None, **other: object) -> Sight:
    """What was seen of a manager in good health, but for what is said otherwise."""
    children = (Child(name="c", url="http://c:1", role="node"),) if role != "node" else ()
    seen = Sight(url=f"http://{name}:1", info=info(name, role, **(said or {})), delay=0.01, children=children)
    return msgspec.structs.replace(seen, **other)


def test_a_healthy_cluster_has_no_findings() -> None:
    """Nothing is said where nothing is wrong."""
    assert list(judge([sight("m", "island"), sight("a"), sight("b")])) == []


FULL = NodeInfo(name="b", load=Load(disk=100, disk_free=1, memory=100, memory_free=50))
ILL: dict[str, tuple[Sight, str]] = {
    "no answer": (Sight(url="http://b:1", trouble="nothing listens there", hint="start it"), "nothing listens"),
    "another key": (sight("b", said={"key": "bbbb"}), "cluster key is bbbb"),
    "no key": (sight("b", said={"key": ""}), "cluster key is none"),
    "another version": (sight("b", said={"version": "0.0.0"}), "version of dropflow is 0.0.0"),
    "another protocol": (sight("b", said={"protocol": 9}), "protocol of the links is 9"),
    "a clock ahead": (sight("b", skew=5.0), "5.0 s ahead"),
    "a clock behind": (sight("b", skew=-500.0), "500.0 s behind the clock here"),
    "a session that cannot be read": (sight("b", said={"findings": ["session 's' cannot be read"]}), "cannot be read"),
    "a closed port": (sight("b", links="its links cannot be reached"), "cannot be reached"),
    "a full disk": (sight("b", nodes=(FULL,)), "1.0 % of its disk"),
    "the same name": (msgspec.structs.replace(sight("a"), url="http://b:1"), "2 managers (node) have this name"),
    "a lost child": (
        sight("b", "island", children=(Child(name="c", url="http://c:1", role="node", state="lost", text="silent"),)),
        "child c is lost: silent",
    ),
    "no children": (sight("b", "island", children=()), "no children"),
}


@pytest.mark.parametrize("illness", ILL)
def test_each_illness_is_found_and_has_a_remedy(illness: str) -> None:
    """One finding, that says where, what, and what to do; nothing else is found."""
    ill, text = ILL[illness]
    (finding,) = judge([sight("m", "island"), sight("a"), ill])

    assert text in finding.text
    assert finding.hint
    assert finding.where in (ill.url, "a")


def test_a_slow_answer_is_no_clock_skew() -> None:
    """What a slow network explains is not blamed on the clock."""
    assert list(judge([sight("a", skew=3.0, delay=4.0)])) == []


def test_every_manager_is_asked_once(free_service: Callable[[FakeManager], Service]) -> None:
    """Children of children are found, what nobody answers for is a finding, and who answers tells what it reaches."""
    clock = SystemClock()
    node, island = FakeManager("n", clock=clock), FakeManager("i", role="island", nodes=("n",), clock=clock)
    below, above = free_service(node), free_service(island)
    island.add_child(below.url)
    island.add_child("http://127.0.0.1:9")
    asked: list[str] = []

    def connect(url: str) -> Client:
        asked.append(url)
        return Client(url, token="t", timeout=5)  # noqa: S106

    found = examine_cluster(above.url, connect, timeout=5)

    assert {each: asked.count(each) for each in asked} == {above.url: 2, below.url: 1, "http://127.0.0.1:9": 1}
    assert [finding.where for finding in found.findings if "listens" in finding.text] == ["http://127.0.0.1:9"]
    assert {(way.near, way.far) for way in found.ways} == {(above.url, below.url), (above.url, "http://127.0.0.1:9")}
