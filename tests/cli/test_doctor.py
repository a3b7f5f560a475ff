"""The findings of `dropflow doctor` about each manager."""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.client import Client
from dropflow.api.node_records import Child, Load, ManagerInfo, NodeInfo, ProbeResult
from dropflow.cli.doctor import EXTRAS, DoctorReply, examine_cluster
from dropflow.cli.doctor_checks import (
    Connection,
    Evidence,
    Finding,
    ManagerReport,
    ProbePlan,
    findings,
    notes,
    plan_probes,
)
from dropflow.clock import SystemClock
from dropflow.version import __version__
from managers.manager_server import Service
from tests.cli.answers import Command
from tests.fake_manager import FakeManager


@pytest.fixture
def free_service() -> Iterator[Callable[[FakeManager], Service]]:
    """Serve managers until the test ends."""
    services: list[Service] = []

    def serve(manager: FakeManager) -> Service:
        services.append(Service(manager, token="t"))
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


@pytest.mark.parametrize("state", ["draining", "drained"])
def test_a_node_that_is_drained_is_not_wrong(state: Literal["draining", "drained"]) -> None:
    """It ends on purpose: that it does not answer is no finding, neither here nor of its island."""
    island = report(
        "m",
        "island",
        nodes=(NodeInfo(name="b", url="http://b:1", state=state),),
        children=(Child(name="b", url="http://b:1", role="node", state="suspect", text="the server is closing"),),
    )
    node = ManagerReport(url="http://b:1", trouble="the server is closing", hint="start it again")
    closing = ProbeResult(address="http://b:1", ok=False, trouble="the server is closing")
    request = Connection(near=island.url, far=node.url, means="rest", result=closing)

    assert list(findings(Evidence((island, report("a"), node), (request,)))) == []


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
        return Client(url, token="t", timeout=60)

    found = examine_cluster(above.url, connect, timeout=60)

    assert {each: asked.count(each) for each in asked} == {above.url: 2, below.url: 1, "http://127.0.0.1:9": 1}
    assert [finding.where for finding in found.findings if "listens" in finding.text] == ["http://127.0.0.1:9"]
    assert {(connection.near, connection.far) for connection in found.connections} == {
        (above.url, below.url),
        (above.url, "http://127.0.0.1:9"),
    }


def test_the_answer_as_json_has_the_names_of_the_attributes() -> None:
    """Programs read what the documentation of the records names."""
    for kind in (DoctorReply, ManagerReport, Connection):
        assert [field.encode_name for field in msgspec.structs.fields(kind)] == [*kind.__struct_fields__]


def test_every_extra_is_described() -> None:
    """`doctor` names what each extra adds that users can install and that is not here."""
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8"))

    assert set(EXTRAS) == set(project["project"]["optional-dependencies"]) - {"all", "dev", "docs", "release"}


def test_without_a_manager_doctor_tells_what_this_host_lacks(
    dropflow: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the extras that are not installed, that no manager runs here, and what to do; the exit status is 5."""
    monkeypatch.setattr("dropflow.cli.doctor.absent_extras", lambda: ("ray",))
    told = dropflow("doctor")

    assert (told.status, told.err) == (5, "")
    assert f"pip install 'dropflow[NAME]'\n  ray  {EXTRAS['ray']}\n" in told.text
    assert "wrong: this host: no manager is named, and none runs on this host\n  start one with" in told.text


# The findings and notes of `dropflow doctor` about the connections between managers.


DARK = "it does not answer within 5 s"


def _url(name: str) -> str:
    return f"http://{name}:1"


def _node(name: str, **other: object) -> ManagerReport:
    """The report of a node without problems."""
    said: dict[str, object] = {"name": name, "role": "node", "url": _url(name), "version": __version__, "host": name}
    said |= {"key": "k", "process": 1, "incarnation": 1, "started": 0.0, "time": 0.0, "protocol": 1}
    own = NodeInfo(name=name, url=_url(name), links=f"tcp://{name}:5555")
    fields = {field: other.pop(field) for field in list(other) if field in ManagerInfo.__struct_fields__}
    report = ManagerReport(url=_url(name), info=msgspec.convert(said | fields, ManagerInfo), delay=0.01, nodes=(own,))
    return msgspec.structs.replace(report, **other)


def _island(*names: str, **other: object) -> ManagerReport:
    """The report of an island with these nodes."""
    children = tuple(Child(name=name, url=_url(name), role="node") for name in names)
    nodes = tuple(NodeInfo(name=name, url=_url(name), links=f"tcp://{name}:5555") for name in names)
    return msgspec.structs.replace(_node("i", role="island"), **({"children": children, "nodes": nodes} | other))


def _connection(near: str, far: str, trouble: str = "", *, means: str = "links", **other: object) -> Connection:
    """A connection, which succeeded unless there is trouble."""
    address = f"tcp://{far}:5555" if means == "links" else _url(far)
    fields = {"ok": not trouble, "name": "" if trouble else far, "trouble": trouble, "hint": trouble and "do this"}
    result = msgspec.convert(fields | {"address": address} | other, ProbeResult)
    return Connection(near=_url(near), far=_url(far), means=means, result=result)  # type: ignore[arg-type]


def _connections(names: str, bad: Mapping[tuple[str, str], str]) -> list[Connection]:
    """All connections between nodes whose names are one letter."""
    return [_connection(near, far, bad.get((near, far), "")) for near, far in permutations(names, 2)]


def _check(reports: Sequence[ManagerReport], connections: Sequence[Connection] = ()) -> list[Finding]:
    return list(findings(Evidence(tuple(reports), tuple(connections))))


def _check_nodes(names: str, bad: Mapping[tuple[str, str], str]) -> list[Finding]:
    return _check([_node(name) for name in names], _connections(names, bad))


def _notes(
    reports: Sequence[ManagerReport], connections: Sequence[Connection], plan: ProbePlan | None = None
) -> list[str]:
    evidence = Evidence(tuple(reports), tuple(connections))
    return list(notes(evidence, plan or plan_probes(reports, peers=9)))


def test_connections_that_succeed_are_no_finding() -> None:
    """There is no finding if all nodes reach each other."""
    assert _check_nodes("abc", {}) == []


def test_a_failed_connection_names_both_ends() -> None:
    """The finding has both nodes, the address, the reason, and what to do."""
    (found,) = _check_nodes("abc", {("a", "b"): "no route to host"})

    assert found.text == "node a cannot reach the links of node b at tcp://b:5555: no route to host"
    assert (found.where, found.hint) == (_url("a"), "do this")


def test_two_nodes_give_a_finding_for_each_direction() -> None:
    """With two nodes it is not known at which end the cause is."""
    found = _check_nodes("ab", {("a", "b"): DARK, ("b", "a"): DARK})

    assert [finding.where for finding in found] == [_url("a"), _url("b")]


def test_links_that_no_node_reaches_are_one_finding() -> None:
    """It is at the far end, with the reasons that the other nodes report, the most frequent first."""
    (found,) = _check_nodes("abcd", {("a", "d"): DARK, ("b", "d"): "no route to host", ("c", "d"): DARK})

    assert found.where == _url("d")
    assert "the links of node d at tcp://d:5555 cannot be reached by any of 3 managers" in found.text
    assert f"{DARK} (node a, node c); no route to host (node b)" in found.text


def test_a_node_that_reaches_no_other_is_one_finding() -> None:
    """It is at the near end."""
    (found,) = _check_nodes("abcd", {("d", far): DARK for far in "abc"})

    assert (found.where, found.text) == (_url("d"), f"node d cannot reach the links of any of 3 others: {DARK}")


def test_a_cluster_without_any_connection_is_one_finding() -> None:
    """There is not one for every pair, nor for every node."""
    (found,) = _check_nodes("abcde", dict.fromkeys(permutations("abcde", 2), DARK))

    assert found.text == f"none of 5 nodes can reach the links of any other: {DARK}"


def test_two_halves_that_cannot_reach_each_other_are_one_finding_per_node() -> None:
    """Each has the nodes that it cannot reach; of many, the rest is counted."""
    bad = {(a, b): DARK for left, right in (("ab", "cdefghij"), ("cdefghij", "ab")) for a in left for b in right}
    found = _check_nodes("abcdefghij", bad)

    assert len(found) == 10
    assert found[0].text.startswith(
        "node a cannot reach the links of node c, node d, node e, node f, node g and 3 more:"
    )


@given(st.sets(st.sampled_from(list(permutations("abcde", 2)))))
def test_failures_give_few_findings(closed: set[tuple[str, str]]) -> None:
    """There are findings exactly if a connection failed, and never more than two for each node."""
    found = _check_nodes("abcde", dict.fromkeys(closed, DARK))

    assert bool(found) == bool(closed)
    assert len(found) <= min(len(closed), 10)
    assert all(finding.hint for finding in found)


def test_another_node_at_an_address_is_a_finding() -> None:
    """Two hosts may have one name, or a node may advertise a loopback address."""
    (found,) = _check([_node("a"), _node("b"), _node("c")], [_connection("a", "b", name="a"), _connection("c", "b")])

    assert found.text == "node a cannot reach the links of node b at tcp://b:5555: a answers there"
    assert "advertise" in found.hint


@pytest.mark.parametrize("other", [{"key": "other"}, {"protocol": 9}], ids=["key", "protocol"])
def test_a_difference_is_one_finding(other: dict[str, object]) -> None:
    """Another key or protocol explains failed connections, which are no findings then."""
    bad = {pair: "it hangs up" for pair in permutations("abc", 2) if "c" in pair}
    (found,) = _check([_node("a"), _node("b"), _node("c", **other)], _connections("abc", bad))

    assert found.where == _url("c")
    assert next(iter(other)) in found.text


def test_a_node_that_is_down_is_one_finding() -> None:
    """Failed connections of other managers to it are no findings."""
    down = ManagerReport(url=_url("b"), trouble="nothing listens there", hint="start it")
    connections = [_connection("a", "b", DARK), _connection("c", "b", DARK), _connection("i", "b", DARK, means="rest")]
    (found,) = _check([_island("a", "b", "c"), _node("a"), down, _node("c")], connections)

    assert (found.where, found.text) == (_url("b"), "nothing listens there")


def test_a_manager_that_only_other_managers_reach() -> None:
    """The finding names a manager that reaches it; its key, version and clock are as others report them."""
    hidden = ManagerReport(url=_url("b"), trouble=DARK, hint="look")
    seen: dict[str, Any] = {"version": "0.0.0", "protocol": 1, "key": "other", "skew": 7.0}
    connections = [_connection("i", "b", means="rest", **seen), _connection("a", "b", "it hangs up")]
    found = _check([_island("a", "b"), _node("a", skew=-1.0), hidden], connections)

    assert found[0].text == f"{DARK} from this host, but island i can reach it"
    texts = [finding.text for finding in found if finding.where == _url("b")][1:]
    assert any("7.0 s ahead of" in text for text in texts)
    assert any("cluster key is other" in text for text in texts)
    assert any("version of dropflow is 0.0.0" in text for text in texts)


def test_an_island_that_cannot_reach_a_child_is_one_finding() -> None:
    """There is one finding, whether or not the island has noticed the loss itself."""
    reports = [_island("a", "b"), _node("a"), _node("b")]
    connections = [_connection("i", "a", means="rest"), _connection("i", "b", DARK, means="rest")]
    (found,) = _check(reports, connections)
    lost = Child(name="b", url=_url("b"), role="node", state="lost", text="silent")
    (noticed,) = _check([msgspec.structs.replace(reports[0], children=(lost,)), *reports[1:]], connections)

    assert found.text == f"island i cannot reach the REST server of node b at {_url('b')}: {DARK}"
    assert noticed.text == "its child b is lost: silent"


def test_nodes_need_no_requests_to_each_other() -> None:
    """Failed requests between nodes are a note, not a finding."""
    reports, connections = (
        [_node("a"), _node("b")],
        [_connection("a", "b"), _connection("a", "b", DARK, means="rest"), _connection("b", "a")],
    )

    assert _check(reports, connections) == []
    (sound, closed) = _notes(reports, connections)
    assert sound == "links between nodes: 2 of 2 connections succeeded"
    assert "node a to node b" in closed


def test_links_need_not_be_reached_from_this_host() -> None:
    """The result of this host counts only if no node tried."""
    hidden = _node("b", links="its links cannot be reached from this host")
    reports, connections = [_node("a"), hidden], [_connection("a", "b"), _connection("b", "a")]

    assert _check(reports, connections) == []
    assert any("cannot be reached from this host" in note for note in _notes(reports, connections))
    assert [finding.text for finding in _check([hidden])] == ["its links cannot be reached from this host"]


def test_a_wrong_clock_of_this_host_is_one_finding() -> None:
    """It is so if all managers have another time, and if they reject signed requests because of it."""
    ahead = [_node(name, skew=30.0 + place) for place, name in enumerate("abc")]
    refusing = [
        ManagerReport(url=_url(name), code="DF221", trouble="the clock of the caller is 70 s behind") for name in "abc"
    ]

    for reports, words in ((ahead, "30.0 s behind those of all 3 managers"), (refusing, "is 70 s behind")):
        (found,) = _check(reports)
        assert found.where == "this host"
        assert words in found.text


def test_each_wrong_clock_is_a_finding() -> None:
    """Clocks that differ from each other are wrong at their managers, not at this host."""
    found = _check([_node("a", skew=30.0), _node("b", skew=-30.0), _node("c")])

    assert [finding.where for finding in found] == [_url("a"), _url("b")]


def test_a_manager_that_does_not_report_its_connections_is_a_finding() -> None:
    """A manager of another version is not, because the version is a finding already."""
    (found,) = _check([_node("a", probe_error="too many probes: 4 are already running"), _node("b")])
    (other,) = _check([_node("a"), _node("b", probe_error="no such page", version="0.0.0")])

    assert "did not report what it can reach: too many probes" in found.text
    assert "version" in other.text


def _plan(reports: Sequence[ManagerReport], peers: int) -> tuple[ProbePlan, list[tuple[str, str]]]:
    plan = plan_probes(reports, peers=peers)
    links = [(near, target.far) for near, row in plan.targets.items() for target in row if target.means == "links"]
    return plan, links


def test_all_connections_of_a_small_cluster_are_planned() -> None:
    """Each node connects to all others, by links and by requests, and the island to its children."""
    plan, links = _plan([_island("a", "b", "c"), *(_node(name) for name in "abc")], 2)

    assert sorted(links) == sorted((_url(near), _url(far)) for near, far in permutations("abc", 2))
    assert [target.far for target in plan.targets[_url("i")]] == [_url(name) for name in "abc"]
    assert (plan.planned, plan.possible) == (6, 6)


@given(st.integers(1, 30), st.integers(0, 40))
def test_in_a_large_cluster_each_node_has_as_many_connections(nodes: int, peers: int) -> None:
    """Each node connects to as many as connect to it; a note counts the connections that were not tried."""
    reports = [_node(f"n{number}") for number in range(nodes)]
    plan, links = _plan(reports, peers)
    most = min(peers, nodes - 1)

    assert len(set(links)) == len(links) == plan.planned == nodes * most
    assert {sum(near == _url(f"n{number}") for near, _ in links) for number in range(nodes)} == {most}
    assert {sum(far == _url(f"n{number}") for _, far in links) for number in range(nodes)} == {most}
    connections = [_connection(near[7:-2], far[7:-2]) for near, far in links]
    said = " ".join(_notes(reports, connections, plan))
    assert ("were not tried" in said) == (peers < nodes - 1)
    assert peers >= nodes - 1 or f"{nodes * (nodes - 1 - most)} of {nodes * (nodes - 1)} connections" in said


def test_nodes_that_do_not_answer_are_tried_by_the_others() -> None:
    """Another manager knows the address of their links."""
    reports = [_island("a", "b"), _node("a"), ManagerReport(url=_url("b"), trouble=DARK)]
    plan, links = _plan(reports, 9)
    said = _notes(reports, [_connection("a", "b", DARK), _connection("a", "b", DARK, means="rest")], plan)

    assert links == [(_url("a"), _url("b"))]
    assert said == [
        "links between nodes: 0 of 1 connection succeeded",
        "1 of 2 connections between nodes were not tried: some nodes do not answer, or their links are unknown",
    ]
