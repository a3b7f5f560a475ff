from contextlib import ExitStack

import msgspec
import pytest

from tests.translator.drawing import Drawing, codes, counts, edges, errors, outlined, ports
from translator.logical import Field


def looped(*, aware: bool = True) -> Drawing:
    """Three iterations of a -> x -> b -> y, entered from d0 and left to z."""
    drawing = Drawing().data("d0")
    with drawing.loop("L", 3):
        drawing.app("a", group_start=True).data("x").app("b").data("y", group_end=True)
    drawing.app("z").data("e")
    drawing.link("a", "x", "b", "y").link("z", "e")
    return drawing.link("d0", "a", aware=aware).link("y", "z", aware=aware)


def test_a_loop_carries_from_each_iteration_to_the_next() -> None:
    """The worked example: 15 drops, 14 edges; first iteration entered, last one left, two carries."""
    assert counts(looped()) == (15, 14)
    assert edges(looped(), "d0", "a") == [((), (0,))]
    assert edges(looped(), "y", "a") == [((0,), (1,)), ((1,), (2,))]
    assert edges(looped(), "y", "z") == [((2,), ())]


def test_an_ordinary_link_joins_every_iteration() -> None:
    """A link that is not loop-aware enters and leaves every iteration."""
    assert edges(looped(aware=False), "d0", "a") == [((), (i,)) for i in range(3)]
    assert edges(looped(aware=False), "y", "z") == [((i,), ()) for i in range(3)]


def test_a_marked_edge_replaces_the_carry_that_would_be_added() -> None:
    """A closes-loop edge carries once, not twice."""
    assert counts(looped().link("y", "a", closes=True)) == (15, 14)


def test_an_unmarked_edge_that_closes_a_cycle_is_a_carry() -> None:
    """From end to start of one loop: taken as closing it, with a warning."""
    drawing = looped().link("y", "a")
    assert counts(drawing) == (15, 14)
    assert codes(drawing) == ["LG061"]


def test_an_ordinary_edge_from_end_to_start_stays_within_its_iteration() -> None:
    """Where it closes no cycle, the consumer keeps the data of its own iteration."""
    drawing = Drawing()
    with drawing.loop("L", 3):
        drawing.app("a", group_start=True).data("y", group_end=True).app("late", group_start=True)
    drawing.link("a", "y", "late").link("y", "a", closes=True)
    assert edges(drawing, "y", "late") == [((i,), (i,)) for i in range(3)]
    assert edges(drawing, "y", "a") == [((0,), (1,)), ((1,), (2,))]


def nested() -> Drawing:
    """A loop of three in a loop of two."""
    drawing = Drawing().data("d0")
    with drawing.loop("L1", 2):
        drawing.app("oa", group_start=True).data("od")
        with drawing.loop("L2", 3):
            drawing.app("ia", group_start=True).data("id", group_end=True)
        drawing.app("ob").data("oe", group_end=True)
    drawing.app("z").data("fin")
    drawing.link("oa", "od").link("ia", "id").link("ob", "oe").link("z", "fin")
    for pair in (("d0", "oa"), ("od", "ia"), ("id", "ob"), ("oe", "z")):
        drawing.link(*pair, aware=True)
    return drawing


def test_nested_loops_carry_inside_each_outer_iteration() -> None:
    """The worked example: 23 drops; the inner loop starts afresh in every outer iteration."""
    assert counts(nested())[0] == 23
    assert edges(nested(), "od", "ia") == [((i,), (i, 0)) for i in range(2)]
    assert edges(nested(), "id", "ia") == [((i, j), (i, j + 1)) for i in range(2) for j in range(2)]


def test_a_loop_aware_link_enters_nested_loops() -> None:
    """It enters the first inner iteration of the first outer one; with `innermost`, the first of each."""
    drawing = nested().data("late").app("end").link("late", "ia", aware=True).link("id", "end", aware=True)
    assert edges(drawing, "late", "ia") == [((), (0, 0))]
    assert edges(drawing, "id", "end") == [((1, 2), ())]
    assert edges(drawing, "late", "ia", loop_aware="innermost") == [((), (i, 0)) for i in range(2)]


def test_a_loop_aware_link_joins_all_copies_of_a_scatter() -> None:
    """Into a scatter inside a loop: the first iteration, every copy; out of it: the last iteration."""
    drawing = Drawing().data("d0").app("end")
    with drawing.loop("L", 2):
        drawing.app("a", group_start=True).data("y", group_end=True)
        with drawing.scatter("S", 3):
            drawing.app("in").data("out")
    drawing.link("a", "y").link("d0", "in", aware=True).link("out", "end", aware=True)
    assert edges(drawing, "d0", "in") == [((), (0, j)) for j in range(3)]
    assert edges(drawing, "out", "end") == [((1, j), ()) for j in range(3)]


def test_a_loop_in_a_scatter_carries_in_each_copy() -> None:
    """Carries are found once, for any number of copies around the loop."""
    drawing = Drawing()
    with drawing.scatter("S", 4), drawing.loop("L", 3):
        drawing.app("a", group_start=True).data("y", group_end=True)
    assert edges(drawing.link("a", "y"), "y", "a") == [((i, j), (i, j + 1)) for i in range(4) for j in range(2)]


def test_a_carry_may_come_from_a_scatter_inside_the_loop() -> None:
    """All copies of one iteration carry to the start of the next; the start carries to all copies."""
    drawing = Drawing()
    with drawing.loop("L", 2):
        drawing.app("a").data("d")
        with drawing.scatter("S", 3):
            drawing.data("out").app("in")
    drawing.link("out", "a", closes=True).link("d", "in", closes=True)
    assert edges(drawing, "out", "a") == [((0, j), (1,)) for j in range(3)]
    assert edges(drawing, "d", "in") == [((0,), (1, j)) for j in range(3)]


def beside(first: int, second: int) -> Drawing:
    """Two loops beside each other in a scatter, one feeding the other."""
    drawing = Drawing()
    with drawing.scatter("S", 2):
        with drawing.loop("L1", first):
            drawing.app("a", group_start=True).data("y", group_end=True)
        with drawing.loop("L2", second):
            drawing.app("b", group_start=True).data("z", group_end=True)
    return drawing.link("a", "y", "b", "z")


def test_equal_loops_run_in_step() -> None:
    """Iteration i feeds iteration i, within each copy of the scatter around both."""
    assert edges(beside(3, 3), "y", "b") == [((i, j), (i, j)) for i in range(2) for j in range(3)]


def test_unequal_loops_cannot_be_linked() -> None:
    """Loops of different length have no common step."""
    assert errors(beside(3, 2)) == ["LG070"]


def joined(source: str, target: str, *, aware: bool) -> Drawing:
    """Data `x` and application `y`, linked; around each of them constructs as "L3 S2" spells them, outermost first."""
    drawing = Drawing()
    for name, around in (("x", source), ("y", target)):
        with ExitStack() as constructs:
            for kind, size in around.split():
                number = len(drawing.nodes)
                open_ = drawing.loop if kind == "L" else drawing.scatter
                constructs.enter_context(open_(f"{kind}{number}", int(size)))
                if kind == "L":
                    drawing.app(f"a{number}", group_start=True).data(f"d{number}", group_end=True)
            drawing.data(name) if name == "x" else drawing.app(name)
    return drawing.link("x", "y", aware=aware)


@pytest.mark.parametrize(
    ("source", "target", "aware", "expected"),
    [
        ("L3", "", False, [((0,), ()), ((1,), ()), ((2,), ())]),
        ("L3", "", True, [((2,), ())]),
        ("", "L3", False, [((), (0,)), ((), (1,)), ((), (2,))]),
        ("", "L3", True, [((), (0,))]),
        ("L3", "L3", False, [((0,), (0,)), ((1,), (1,)), ((2,), (2,))]),
        ("L3", "L3", True, [((2,), (0,))]),
        ("L3", "L4", True, [((2,), (0,))]),
        ("L4", "L3", True, [((3,), (0,))]),
        ("L1", "L3", True, [((0,), (0,))]),
        ("L2 L3", "L2 L3", False, [((i, j), (i, j)) for i in range(2) for j in range(3)]),
        ("L2 L3", "L3", False, [((i, j), (j,)) for i in range(2) for j in range(3)]),
        ("L2 L3", "L4 L5", True, [((1, 2), (0, 0))]),
        ("L2 L3", "L4", True, [((1, 2), (0,))]),
        ("L2 S2", "L3", True, [((1, 0), (0,)), ((1, 1), (0,))]),
        ("S2 L2", "L3", True, [((0, 1), (0,)), ((1, 1), (0,))]),
        ("L2", "L3 S2", True, [((1,), (0, 0)), ((1,), (0, 1))]),
        ("L2", "S2", True, [((1,), (0,)), ((1,), (1,))]),
        ("S2", "L2", True, [((0,), (0,)), ((1,), (0,))]),
    ],
)
def test_how_links_between_loops_and_scatters_join_iterations(
    source: str, target: str, *, aware: bool, expected: list[tuple[tuple[int, ...], ...]]
) -> None:
    """Loop-aware links lead from last to first iterations for any counts; others pair, collect or broadcast."""
    assert edges(joined(source, target, aware=aware), "x", "y") == expected


@pytest.mark.parametrize(
    ("source", "target", "aware"),
    [("L3", "L4", False), ("L2", "S2", False), ("S2", "L2", False), ("S2", "S2", True), ("L2 S2", "L2 S2", True)],
)
def test_links_that_join_nothing_are_refused(source: str, target: str, *, aware: bool) -> None:
    """Unpaired levels at both ends are an error, because their copies cannot be paired."""
    assert errors(joined(source, target, aware=aware)) == ["LG070"]


def test_two_loops_in_a_row_inside_a_scatter() -> None:
    """A loop-aware link joins them within each copy, last iteration to first."""
    drawing = beside(3, 4)
    drawing.links = [
        msgspec.structs.replace(link, loop_aware=(link.source, link.target) == ("y", "b")) for link in drawing.links
    ]
    assert codes(drawing) == []
    assert edges(drawing, "y", "b") == [((i, 2), (i, 0)) for i in range(2)]


def test_unequal_loops_have_a_hint() -> None:
    """The reason is the number of iterations; a loop-aware edge is offered where it would do, and else is not."""
    (problem,) = outlined(joined("L3", "L4", aware=False)).problems
    assert "equal numbers of iterations" in problem.text
    assert "loop-aware" in problem.hint
    (problem,) = outlined(joined("L3 S2", "L4 S2", aware=False)).problems
    assert "loop-aware" not in problem.hint


def carried(*, aware: bool = False, own_port: bool = False) -> Drawing:
    """Three iterations of a -> y, which carries to the port of `a` that `d0` feeds, in a scatter of two."""
    drawing = Drawing().data("d0")
    ports = {name: port(name, "InputPort") for name in ("in", "other")}
    with drawing.scatter("S", 2), drawing.loop("L", 3):
        drawing.app("a", **ports).data("y").link("a", "y")
    drawing.link("y", "a", closes=True, ports=("", "in.InputPort"))
    return drawing.link("d0", "a", aware=aware, ports=("", "other.InputPort" if own_port else "in.InputPort"))


def test_a_port_with_entry_and_carry_takes_the_carry_from_the_second_iteration_on() -> None:
    """A link into a loop at the port of a carry is used for the first iteration only, with a warning."""
    assert edges(carried(), "d0", "a") == [((), (s, 0)) for s in range(2)]
    assert edges(carried(), "y", "a") == [((s, i), (s, i + 1)) for s in range(2) for i in range(2)]
    assert codes(carried()) == ["LG063"]
    assert edges(carried(aware=True), "d0", "a") == edges(carried(), "d0", "a")
    assert codes(carried(aware=True)) == []


def test_another_port_is_fed_in_every_iteration() -> None:
    """An entry at a port of its own is an ordinary input of each iteration."""
    assert edges(carried(own_port=True), "d0", "a") == [((), (s, i)) for s in range(2) for i in range(3)]
    assert codes(carried(own_port=True)) == []


def test_entry_and_carries_of_nested_loops_on_one_port() -> None:
    """An inner loop starts from outside once, from the outer carry then, and from its own carry within."""
    drawing = Drawing().data("d0")
    with drawing.loop("L1", 2):
        drawing.data("od")
        with drawing.loop("L2", 3):
            drawing.app("a", p=port("p", "InputPort")).data("y").link("a", "y", "od")
    at = ("", "p.InputPort")
    drawing.link("y", "a", closes=True, ports=at).link("od", "a", closes=True, ports=at).link("d0", "a", ports=at)
    assert edges(drawing, "y", "a") == [((i, j), (i, j + 1)) for i in range(2) for j in range(2)]
    assert edges(drawing, "od", "a") == [((0,), (1, 0))]
    assert edges(drawing, "d0", "a") == [((), (0, 0))]


def two_ways(ends: tuple[Field, Field], starts: tuple[Field, Field]) -> Drawing:
    """A loop with two ends and two starts."""
    drawing = Drawing()
    with drawing.loop("L", 2):
        for number in (0, 1):
            drawing.app(f"s{number}", group_start=True, port=starts[number])
            drawing.data(f"e{number}", group_end=True, port=ends[number])
            drawing.link(f"s{number}", f"e{number}")
    return drawing


def port(name: str, usage: str, type_: str = "Object") -> Field:
    """A port."""
    return Field(id=f"{name}.{usage}", name=name, usage=usage, type=type_)


def test_several_ends_and_starts_pair_by_the_names_of_their_ports() -> None:
    """If the names of ports pair ends with starts, only these are joined, at these ports."""
    drawing = two_ways(
        (port("x", "InputOutput"), port("y", "InputOutput")), (port("y", "InputPort"), port("x", "InputPort"))
    )
    assert ports(drawing, "e0", "s1") == [("x", "x")]
    assert ports(drawing, "e1", "s0") == [("y", "y")]
    assert ports(drawing, "e0", "s0") == ports(drawing, "e1", "s1") == []


def test_several_ends_and_starts_pair_by_type_next() -> None:
    """If names do not pair them, types do; with general types, all ends are joined to all starts."""
    kinds = ("Object.image", "Object.table")
    by_type = two_ways(
        (port("x", "OutputPort", kinds[0]), port("y", "OutputPort", kinds[1])),
        (port("a", "InputPort", kinds[0]), port("b", "InputPort", kinds[1])),
    )
    assert [len(ports(by_type, f"e{i}", f"s{j}")) for i in (0, 1) for j in (0, 1)] == [1, 0, 0, 1]
    general = two_ways(
        (port("x", "OutputPort"), port("y", "OutputPort")), (port("a", "InputPort"), port("b", "InputPort"))
    )
    assert [len(ports(general, f"e{i}", f"s{j}")) for i in (0, 1) for j in (0, 1)] == [1, 1, 1, 1]


def test_a_loop_without_a_carry_is_an_error() -> None:
    """Without a closes-loop edge, LG060 names the missing start or end."""
    drawing = Drawing()
    with drawing.loop("L", 2):
        drawing.app("a", group_start=True).data("d")
    assert errors(drawing.link("a", "d")) == ["LG060"]
    assert "group_end" in outlined(drawing).problems[0].text


def test_a_closes_loop_edge_outside_of_a_loop_is_an_ordinary_edge() -> None:
    """The edge is kept, with a warning."""
    drawing = Drawing().app("a").data("d").link("a", "d", closes=True)
    assert counts(drawing) == (2, 1)
    assert codes(drawing) == ["LG062"]


def test_a_closes_loop_edge_into_a_gather_is_an_ordinary_edge() -> None:
    """The warning states that the target is a gather inside the loop."""
    drawing = Drawing()
    with drawing.loop("L", 2):
        drawing.app("a", group_start=True).data("d", group_end=True).link("a", "d")
        with drawing.gather("G", app="g"):
            drawing.data("out")
    drawing.link("g", "out").link("d", "g", closes=True)
    (problem,) = outlined(drawing).problems
    assert problem.code == "LG062"
    assert "from 'd' to 'g' enters a gather or a group-by" in problem.text


@pytest.mark.parametrize("iterations", [0, 1])
def test_loops_of_less_than_two_iterations_have_no_carries(iterations: int) -> None:
    """A loop of one iteration has no carries; one of none has no drops, and no loop-aware link leaves it."""
    drawing = looped()
    drawing.nodes = [
        node
        if node.id != "L"
        else msgspec.structs.replace(node, fields=(Field(id="n", name="num_of_iter", value=iterations),))
        for node in drawing.nodes
    ]
    assert edges(drawing, "y", "a") == []
    assert counts(drawing) == (3 + 4 * iterations, 1 + 5 * iterations)


def test_applications_of_a_loop_have_one_instance() -> None:
    """Input and output application of a loop are outside of it, and have one instance each."""
    drawing = Drawing().data("d0").data("d1")
    with drawing.loop("L", 3, app="in", out="out"):
        drawing.data("x").app("a", group_start=True).data("y", group_end=True)
    drawing.link("d0", "in").link("in", "x", aware=True).link("x", "a", "y").link("y", "out", aware=True)
    drawing.link("out", "d1")
    assert edges(drawing, "in", "x") == [((), (0,))]
    assert edges(drawing, "y", "out") == [((2,), ())]


def test_a_cycle_is_an_error_that_names_it() -> None:
    """A cycle within an iteration is LG050, with the nodes on it in order."""
    drawing = Drawing().app("a").data("x").app("b").data("y").link("a", "x", "b", "y", "a")
    assert errors(drawing) == ["LG050"]
    assert "'a' -> 'x' -> 'b' -> 'y' -> 'a'" in outlined(drawing).problems[0].text


def test_a_cycle_through_equal_names_distinguishes_the_nodes() -> None:
    """Where nodes on a cycle share a name, their ids stand beside it."""
    drawing = Drawing().app("a").data("x").link("a", "x", "a")
    drawing.nodes = [msgspec.structs.replace(node, name="same") for node in drawing.nodes]
    assert "'same' (a) -> 'same' (x) -> 'same' (a)" in outlined(drawing).problems[0].text


@pytest.mark.slow
def test_a_long_cycle_is_abbreviated() -> None:
    """A cycle of a thousand nodes is reported in one line."""
    names = [f"{'ad'[number % 2]}{number}" for number in range(1000)]
    drawing = Drawing()
    for name in names:
        drawing.app(name) if name.startswith("a") else drawing.data(name)
    problem = outlined(drawing.link(*names, names[0])).problems[0]
    assert problem.code == "LG050"
    assert problem.text.endswith("-> 988 more -> 'a0'")


def test_a_loop_aware_link_without_a_loop_is_a_note() -> None:
    """Old graphs mark every edge as loop-aware; if that has no effect, it is a note."""
    outline = outlined(Drawing().app("a").data("d").link("a", "d", aware=True))
    assert [(problem.code, problem.severity.value) for problem in outline.problems] == [("LG062", "info")]


@pytest.mark.parametrize("kind", ["app", "data"])
@pytest.mark.parametrize("is_leaving", [True, False])
def test_a_loop_without_iterations_has_no_adapters(kind: str, *, is_leaving: bool) -> None:
    """A loop-aware edge between nodes of one kind that leaves it, or enters it, joins nothing."""
    drawing = Drawing()
    getattr(drawing, kind)("outside")
    with drawing.loop("L", 0):
        drawing.app("begin").data("end")
        getattr(drawing, kind)("inside")
    drawing.link("end", "begin", closes=True)
    drawing.link(*(("inside", "outside") if is_leaving else ("outside", "inside")), aware=True)

    assert counts(drawing) == (1, 0)
