"""What the doctor says about the ways between managers."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.cli.doctor.checks import judge, notes
from dropflow.cli.doctor.observations import Finding, Sight, Way
from dropflow.cli.doctor.probes import Plan, plan_ways
from dropflow.rest.schema import Child, ManagerInfo, NodeInfo, ProbeResult
from dropflow.version import __version__

DARK = "it does not answer within 5 s"


def _url(name: str) -> str:
    return f"http://{name}:1"


def _node(name: str, **other: object) -> Sight:
    """A node in good health, as it was seen from here."""
    said: dict[str, object] = {"name": name, "role": "node", "url": _url(name), "version": __version__, "host": name}
    said |= {"key": "k", "process": 1, "incarnation": 1, "started": 0.0, "time": 0.0, "protocol": 1}
    own = NodeInfo(name=name, url=_url(name), links=f"tcp://{name}:5555")
    fields = {field: other.pop(field) for field in list(other) if field in ManagerInfo.__struct_fields__}
    seen = Sight(url=_url(name), info=msgspec.convert(said | fields, ManagerInfo), delay=0.01, nodes=(own,))
    return msgspec.structs.replace(seen, **other)


def _island(*names: str, **other: object) -> Sight:
    """An island over nodes."""
    children = tuple(Child(name=name, url=_url(name), role="node") for name in names)
    nodes = tuple(NodeInfo(name=name, url=_url(name), links=f"tcp://{name}:5555") for name in names)
    return msgspec.structs.replace(_node("i", role="island"), **({"children": children, "nodes": nodes} | other))


def _way(near: str, far: str, trouble: str = "", *, means: str = "links", **other: object) -> Way:
    """One way, sound unless there is trouble."""
    address = f"tcp://{far}:5555" if means == "links" else _url(far)
    fields = {"ok": not trouble, "name": "" if trouble else far, "trouble": trouble, "hint": trouble and "do this"}
    reach = msgspec.convert(fields | {"address": address} | other, ProbeResult)
    return Way(near=_url(near), far=_url(far), means=means, reach=reach)  # type: ignore[arg-type]


def _ways(names: str, bad: Mapping[tuple[str, str], str]) -> list[Way]:
    """All ways between nodes of one letter."""
    return [_way(near, far, bad.get((near, far), "")) for near, far in permutations(names, 2)]


def _judge(names: str, bad: Mapping[tuple[str, str], str]) -> list[Finding]:
    return list(judge([_node(name) for name in names], _ways(names, bad)))


def test_sound_ways_are_no_finding() -> None:
    """Nothing is said where nothing is wrong."""
    assert _judge("abc", {}) == []


def test_one_way_that_is_closed_names_both_ends() -> None:
    """Who cannot reach whom, where, and why; with what to do."""
    (found,) = _judge("abc", {("a", "b"): "no route to host"})

    assert found.text == "node a cannot reach the links of node b at tcp://b:5555: no route to host"
    assert (found.where, found.hint) == (_url("a"), "do this")


def test_two_nodes_are_told_each_way() -> None:
    """With two nodes there is no end at which the fault surely is."""
    found = _judge("ab", {("a", "b"): DARK, ("b", "a"): DARK})

    assert [finding.where for finding in found] == [_url("a"), _url("b")]


def test_links_that_nobody_reaches_are_told_once() -> None:
    """At the far end, with the reasons that the others have, the most frequent first."""
    (found,) = _judge("abcd", {("a", "d"): DARK, ("b", "d"): "no route to host", ("c", "d"): DARK})

    assert found.where == _url("d")
    assert "the links of node d at tcp://d:5555 cannot be reached by any of 3 managers" in found.text
    assert f"{DARK} (node a, node c); no route to host (node b)" in found.text


def test_a_node_that_reaches_nobody_is_told_once() -> None:
    """At the near end."""
    (found,) = _judge("abcd", {("d", far): DARK for far in "abc"})

    assert (found.where, found.text) == (_url("d"), f"node d cannot reach the links of any of 3 others: {DARK}")


def test_a_cluster_without_any_way_is_told_once() -> None:
    """Not once for every pair, nor for every node."""
    (found,) = _judge("abcde", dict.fromkeys(permutations("abcde", 2), DARK))

    assert found.text == f"none of 5 nodes can reach the links of any other: {DARK}"


def test_two_halves_that_do_not_see_each_other_are_one_finding_a_node() -> None:
    """Each with the nodes that it misses; many are counted."""
    bad = {(a, b): DARK for left, right in (("ab", "cdefghij"), ("cdefghij", "ab")) for a in left for b in right}
    found = _judge("abcdefghij", bad)

    assert len(found) == 10
    assert found[0].text.startswith(
        "node a cannot reach the links of node c, node d, node e, node f, node g and 3 more:"
    )


@given(st.sets(st.sampled_from(list(permutations("abcde", 2)))))
def test_whatever_is_closed_is_told_briefly(closed: set[tuple[str, str]]) -> None:
    """Something is said exactly if a way is closed, and never more than two things for each node."""
    found = _judge("abcde", dict.fromkeys(closed, DARK))

    assert bool(found) == bool(closed)
    assert len(found) <= min(len(closed), 10)
    assert all(finding.hint for finding in found)


def test_somebody_else_at_an_address_is_told() -> None:
    """Two hosts that call themselves the same, or a node that advertises the loopback of everybody."""
    (found,) = judge([_node("a"), _node("b"), _node("c")], [_way("a", "b", name="a"), _way("c", "b")])

    assert found.text == "node a cannot reach the links of node b at tcp://b:5555: a answers there"
    assert "advertise" in found.hint


@pytest.mark.parametrize("other", [{"key": "other"}, {"protocol": 9}], ids=["key", "protocol"])
def test_what_differs_is_told_once(other: dict[str, object]) -> None:
    """A key or a protocol that is another one explains why its ways are closed."""
    bad = {pair: "it hangs up" for pair in permutations("abc", 2) if "c" in pair}
    (found,) = judge([_node("a"), _node("b"), _node("c", **other)], _ways("abc", bad))

    assert found.where == _url("c")
    assert next(iter(other)) in found.text


def test_a_node_that_is_down_is_told_once() -> None:
    """Not again by those who miss its links and its answers."""
    down = Sight(url=_url("b"), trouble="nothing listens there", hint="start it")
    ways = [_way("a", "b", DARK), _way("c", "b", DARK), _way("i", "b", DARK, means="rest")]
    (found,) = judge([_island("a", "b", "c"), _node("a"), down, _node("c")], ways)

    assert (found.where, found.text) == (_url("b"), "nothing listens there")


def test_a_manager_that_only_others_reach_is_told_so() -> None:
    """The way from here is what is missing; what differs at it is seen through the eyes of the others."""
    hidden = Sight(url=_url("b"), trouble=DARK, hint="look")
    seen: dict[str, Any] = {"version": "0.0.0", "protocol": 1, "key": "other", "skew": 7.0}
    ways = [_way("i", "b", means="rest", **seen), _way("a", "b", "it hangs up")]
    found = list(judge([_island("a", "b"), _node("a", skew=-1.0), hidden], ways))

    assert found[0].text == f"{DARK} from here, though island i can reach it"
    texts = [finding.text for finding in found if finding.where == _url("b")][1:]
    assert any("7.0 s ahead of" in text for text in texts)
    assert any("cluster key is other" in text for text in texts)
    assert any("version of dropflow is 0.0.0" in text for text in texts)


def test_an_island_that_cannot_reach_a_child_is_told() -> None:
    """Though it may not have noticed yet; what it has noticed itself is not said twice."""
    sights = [_island("a", "b"), _node("a"), _node("b")]
    ways = [_way("i", "a", means="rest"), _way("i", "b", DARK, means="rest")]
    (found,) = judge(sights, ways)
    lost = Child(name="b", url=_url("b"), role="node", state="lost", text="silent")
    (noticed,) = judge([msgspec.structs.replace(sights[0], children=(lost,)), *sights[1:]], ways)

    assert found.text == f"island i cannot reach the REST server of node b at {_url('b')}: {DARK}"
    assert noticed.text == "its child b is lost: silent"


def test_nodes_need_no_requests_to_each_other() -> None:
    """Closed REST ports between nodes are worth a note, and nothing is wrong."""
    sights, ways = [_node("a"), _node("b")], [_way("a", "b"), _way("a", "b", DARK, means="rest"), _way("b", "a")]

    assert list(judge(sights, ways)) == []
    (sound, closed) = notes(sights, ways, plan_ways(sights, peers=9))
    assert sound == "links between nodes: 2 of 2 ways tried are sound"
    assert "node a to node b" in closed


def test_links_need_not_be_reached_from_here() -> None:
    """Where the nodes themselves have tried, their word counts; where nobody could, that of this host."""
    hidden = _node("b", links="its links cannot be reached from here")
    sights, ways = [_node("a"), hidden], [_way("a", "b"), _way("b", "a")]

    assert list(judge(sights, ways)) == []
    assert any("cannot be reached from here" in note for note in notes(sights, ways, plan_ways(sights, peers=9)))
    assert [finding.text for finding in judge([hidden])] == ["its links cannot be reached from here"]


def test_the_clock_of_this_host_is_told_once() -> None:
    """When it is the odd one, whether managers answer or refuse what it signs."""
    ahead = [_node(name, skew=30.0 + place) for place, name in enumerate("abc")]
    refusing = [Sight(url=_url(name), code="DF221", trouble="the clock of the caller is 70 s behind") for name in "abc"]

    for sights, words in ((ahead, "30.0 s behind those of all 3 managers"), (refusing, "is 70 s behind")):
        (found,) = judge(sights)
        assert found.where == "this host"
        assert words in found.text


def test_clocks_that_differ_among_each_other_are_told_apart() -> None:
    """Each that is off, with by how much."""
    found = list(judge([_node("a", skew=30.0), _node("b", skew=-30.0), _node("c")]))

    assert [finding.where for finding in found] == [_url("a"), _url("b")]


def test_who_does_not_say_what_it_reaches_is_told() -> None:
    """But not who is of another version, which is told of already."""
    (found,) = judge([_node("a", mute="4 probes are under way already"), _node("b")])
    (other,) = judge([_node("a"), _node("b", mute="no such page", version="0.0.0")])

    assert "does not say what it reaches: 4 probes" in found.text
    assert "version" in other.text


def _plan(sights: Sequence[Sight], peers: int) -> tuple[Plan, list[tuple[str, str]]]:
    plan = plan_ways(sights, peers=peers)
    links = [(near, target.far) for near, row in plan.targets.items() for target in row if target.means == "links"]
    return plan, links


def test_all_ways_of_a_small_cluster_are_tried() -> None:
    """Links and requests of every node to every other, and of the island to its children."""
    plan, links = _plan([_island("a", "b", "c"), *(_node(name) for name in "abc")], 2)

    assert sorted(links) == sorted((_url(near), _url(far)) for near, far in permutations("abc", 2))
    assert [target.far for target in plan.targets[_url("i")]] == [_url(name) for name in "abc"]
    assert (plan.tried, plan.possible) == (6, 6)


@given(st.integers(1, 30), st.integers(0, 40))
def test_of_a_large_cluster_each_node_tries_and_is_tried_as_often(nodes: int, peers: int) -> None:
    """No node is left out, and the number of ways is bounded; whatever is left out is said."""
    sights = [_node(f"n{number}") for number in range(nodes)]
    plan, links = _plan(sights, peers)
    most = min(peers, nodes - 1)

    assert len(set(links)) == len(links) == plan.tried == nodes * most
    assert {sum(near == _url(f"n{number}") for near, _ in links) for number in range(nodes)} == {most}
    assert {sum(far == _url(f"n{number}") for _, far in links) for number in range(nodes)} == {most}
    ways = [_way(near[7:-2], far[7:-2]) for near, far in links]
    said = " ".join(notes(sights, ways, plan))
    assert ("were not tried" in said) == (peers < nodes - 1)
    assert peers >= nodes - 1 or f"{nodes * (nodes - 1 - most)} of {nodes * (nodes - 1)} ways" in said


def test_nodes_that_cannot_be_asked_are_tried_by_the_others() -> None:
    """As long as anybody knows where they are."""
    sights = [_island("a", "b"), _node("a"), Sight(url=_url("b"), trouble=DARK)]
    plan, links = _plan(sights, 9)
    said = list(notes(sights, [_way("a", "b", DARK), _way("a", "b", DARK, means="rest")], plan))

    assert links == [(_url("a"), _url("b"))]
    assert said == [
        "links between nodes: 0 of 1 way tried are sound",
        "1 of 2 ways were not tried: some nodes do not answer, or nobody knows their links",
    ]
