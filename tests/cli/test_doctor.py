"""The findings of `dropflow doctor` about each manager."""

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from dropflow.api.client import Client
from dropflow.api.records import Child, Load, ManagerInfo, NodeInfo
from dropflow.cli.doctor import EXTRAS, examine_cluster
from dropflow.cli.doctor_checks import Evidence, Finding, ManagerReport, findings
from dropflow.clock import SystemClock
from dropflow.testing.fake_manager import FakeManager
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
    """The description of a manager without problems."""
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


def report(name: str, role: str = "node", *, said: dict[str, object] | None = None, **other: object) -> ManagerReport:
    """The report of a manager without problems, apart from the given fields."""
    children = (Child(name="c", url="http://c:1", role="node"),) if role != "node" else ()
    found = ManagerReport(url=f"http://{name}:1", info=info(name, role, **(said or {})), delay=0.01, children=children)
    return msgspec.structs.replace(found, **other)


def check(*reports: ManagerReport) -> list[Finding]:
    """The findings about these managers, without connections between them."""
    return list(findings(Evidence(reports)))


def test_a_cluster_without_problems_has_no_findings() -> None:
    """Managers with one key, version and clock that all answer give no finding."""
    assert check(report("m", "island"), report("a"), report("b")) == []


FULL = NodeInfo(name="b", load=Load(disk=100, disk_free=1, memory=100, memory_free=50))
PROBLEMS: dict[str, tuple[ManagerReport, str]] = {
    "no answer": (ManagerReport(url="http://b:1", trouble="nothing listens there", hint="start it"), "nothing listens"),
    "another key": (report("b", said={"key": "bbbb"}), "cluster key is bbbb"),
    "no key": (report("b", said={"key": ""}), "cluster key is none"),
    "another version": (report("b", said={"version": "0.0.0"}), "version of dropflow is 0.0.0"),
    "another protocol": (report("b", said={"protocol": 9}), "protocol of the links is 9"),
    "a clock ahead": (report("b", skew=5.0), "5.0 s ahead"),
    "a clock behind": (report("b", skew=-500.0), "500.0 s behind the clock of this host"),
    "a session that cannot be read": (report("b", said={"findings": ["session 's' cannot be read"]}), "cannot be read"),
    "a closed port": (report("b", links="its links cannot be reached"), "cannot be reached"),
    "a full disk": (report("b", nodes=(FULL,)), "1.0 % of its disk"),
    "the same name": (msgspec.structs.replace(report("a"), url="http://b:1"), "2 managers (node) have this name"),
    "a lost child": (
        report("b", "island", children=(Child(name="c", url="http://c:1", role="node", state="lost", text="silent"),)),
        "child c is lost: silent",
    ),
    "no children": (report("b", "island", children=()), "no children"),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_each_problem_is_one_finding_with_a_hint(problem: str) -> None:
    """There is exactly one finding: where, what, and what to do."""
    ill, text = PROBLEMS[problem]
    (finding,) = check(report("m", "island"), report("a"), ill)

    assert text in finding.text
    assert finding.hint
    assert finding.where in (ill.url, "a")


def test_a_slow_answer_is_not_clock_skew() -> None:
    """A difference of clocks that a slow network explains is no finding."""
    assert check(report("a", skew=3.0, delay=4.0)) == []


def test_every_manager_is_asked_once(free_service: Callable[[FakeManager], Service]) -> None:
    """Managers below managers are asked, those without an answer are findings, the others report their connections."""
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
    assert {(connection.near, connection.far) for connection in found.connections} == {
        (above.url, below.url),
        (above.url, "http://127.0.0.1:9"),
    }


def test_every_extra_is_described() -> None:
    """`doctor` names what each extra adds that users can install and that is not here."""
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8"))

    assert set(EXTRAS) == set(project["project"]["optional-dependencies"]) - {"all", "dev", "docs", "release"}
