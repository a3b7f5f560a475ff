"""Graphs that are written in Python, and run: what each call and construct gives."""

import os
import resource
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dropflow
from dropflow import Data, Graph, GraphRun, SubmittedGraph, app
from dropflow.api.drop_records import ResultInfo
from dropflow.errors import AppError, NotFoundError, StorageError, UsageError

Run = Callable[..., GraphRun]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a graph in this process."""

    def run(graph: Graph, values: dict[str, Any] | None = None) -> GraphRun:
        assert [one for one in graph.check(values) if one.severity is dropflow.Severity.ERROR] == []
        return graph.run(values, runner="inline", directory=tmp_path / "run", overwrite=True)

    return run


@app
def numbers(count: int) -> list[int]:
    """Return the first numbers."""
    return list(range(count))


@app
def double(x: int) -> int:
    """Return twice the number."""
    return 2 * x


@app
def total(values: list[int], offset: int = 0) -> int:
    """Return the sum."""
    return sum(values) + offset


@app
def halve(x: float) -> float:
    """Return half the number."""
    return x / 2


@app
def is_small(x: float) -> bool:
    """Return whether the number is less than one."""
    return x < 1


def test_values_that_no_call_returned_cannot_be_scattered() -> None:
    """A list of Python is refused, with what to give instead."""
    graph = Graph("g", "A scatter of a list.")
    wrong: Any = [1, 2, 3]
    with graph, pytest.raises(UsageError, match=r"\[1, 2, 3\] is not data of the graph") as caught:
        graph.each(wrong, copies=3).__enter__()

    assert "returned in this graph" in caught.value.hint


def test_a_call_outside_a_graph_is_an_ordinary_call() -> None:
    """So functions can be tested, and used by other functions, without a graph."""
    assert total(numbers(4), offset=1) == 7
    assert repr(total) == "<app 'Total'>"


@pytest.mark.slow
def test_each_copy_of_a_scatter_gets_one_element(run: Run) -> None:
    """A function after the scatter gets the list of all copies, in order."""
    with Graph("squares") as graph:
        with graph.each(numbers(5), copies=5) as number:
            twice = double(number)
        result = total(twice, offset=100)

    ended = run(graph)

    assert ended.ok
    assert ended.value(result) == 120
    assert graph.translate().graph.drops == 2 + 1 + 5 + 10 + 2


@app
def spectrum(channels: int) -> dict[str, list[float]]:
    """Return a table by column."""
    return {"channel": [float(number) for number in range(channels)], "flux": [0.5] * channels}


@pytest.mark.slow
def test_a_table_is_saved_as_one(run: Run, tmp_path: Path) -> None:
    """A ``.csv`` of a value that is annotated as a mapping has its columns; one of a number has its text."""
    pytest.importorskip("pandas")
    with Graph("tables") as graph:
        spectrum(2).save("table.csv")
        double(2).save("number.csv")

    assert run(graph).ok
    files = {path.name: path.read_text() for path in tmp_path.rglob("*.csv")}
    assert files == {"table.csv": "channel,flux\n0.0,0.5\n1.0,0.5\n", "number.csv": "4"}


@app
def length(text: str) -> int:
    """Return the length of a text."""
    return len(text)


@app
def base_name(folder: Path) -> str:
    """Return the name of a directory."""
    return Path(folder).name


@pytest.mark.slow
def test_each_copy_gets_one_of_many_files(run: Run, tmp_path: Path) -> None:
    """Sorted by name; directories are given by their paths. If files were added since, the run fails and says so."""
    for number in range(12):
        (tmp_path / f"{number:02}.txt").write_text("x" * number)
        (tmp_path / f"{number:02}.dir").mkdir()
    with Graph("files") as graph:
        with graph.each(dropflow.glob(tmp_path / "*.txt")) as text:
            lengths = length(text)
        with graph.each(dropflow.glob(tmp_path / "*.dir"), name="Sets") as folder:
            names = base_name(folder)
        result = total(lengths)

    ended = run(graph)
    assert ended.ok, ended.result.failures[0].text
    assert ended.value(result) == sum(range(12))
    assert ended.value(names) == [f"{number:02}.dir" for number in range(12)]
    (tmp_path / "again.txt").write_text("x")
    ended = run(graph)
    assert not ended.ok
    assert "13 files match" in ended.result.failures[0].text
    assert "translated for 12" in ended.result.failures[0].text
    with pytest.raises(UsageError, match=r"no file matches .*/none"):
        dropflow.glob("none")


def test_a_scatter_gives_pieces(run: Run) -> None:
    """Pieces have nearly equal lengths, and are in order."""
    with Graph("pieces") as graph, graph.scatter(numbers(5), copies=2) as piece:
        sums = total(piece)

    assert run(graph).value(sums) == [0 + 1 + 2, 3 + 4]


@pytest.mark.parametrize(("count", "sums"), [(5, [2, 10, 8]), (2, [2]), (1, [0])])
def test_a_gather_with_a_width_gives_a_list_also_of_one_chunk(run: Run, count: int, sums: list[int]) -> None:
    """What a program gets does not depend on how many data there are."""
    with Graph("chunks") as graph:
        with graph.each(numbers(count), copies=count) as number:
            twice = double(number)
        with graph.gather(twice, width=2) as chunk:
            found = total(chunk).set(persist=True)
        everything = total(found)
    done = run(graph)

    assert done.value(found) == sums
    assert done.value(everything) == sum(sums)


def test_a_gather_takes_so_many_at_a_time(run: Run) -> None:
    """The last copy gets the rest."""
    with Graph("chunks") as graph:
        with graph.each(numbers(5), copies=5) as number:
            twice = double(number)
        with graph.gather(twice, width=2) as chunk:
            sums = total(chunk)

    assert run(graph).value(sums) == [0 + 2, 4 + 6, 8]


def test_a_gather_tolerates_failures(run: Run) -> None:
    """Failed copies are left out of the list."""
    with Graph("rest") as graph:
        with graph.each(numbers(4), copies=4) as number:
            checked = graph.call(_refuse_two, number)
        with graph.gather(checked, tolerate=30) as rest:
            found = total(rest)

    assert run(graph).value(found) == 0 + 1 + 3


def _refuse_two(x: int) -> int:
    if x == 2:
        raise ValueError("two is refused")
    return x


def test_a_group_by_turns_the_corner(run: Run) -> None:
    """Copies are grouped by the index of the inner scatter."""
    with Graph("turn") as graph:
        rows = graph.value([[1, 2], [10, 20], [100, 200]], name="Rows")
        with graph.each(rows, copies=3) as row, graph.each(row, copies=2) as cell:
            kept = double(cell)
        with graph.group_by(kept) as column:
            sums = total(column)

    assert run(graph).value(sums) == [222, 444]


def test_a_loop_carries_a_value(run: Run) -> None:
    """The first iteration gets the first value, each other one that of the iteration before."""
    with Graph("halves") as graph:
        with graph.loop(iterations=4) as loop:
            x = loop.carry(80.0)
            half = halve(x)
            loop.again(x, half)
        last = graph.call(halve, loop.last(half))
        every = graph.call(_listed, half)

    ended = run(graph)

    assert ended.value(last) == 80 / 2**5
    assert ended.value(every) == [40.0, 20.0, 10.0, 5.0]


def _listed(values: list[float]) -> list[float]:
    return values


def test_branches_pass_on_what_is_written_in_any_encoding(run: Run, tmp_path: Path) -> None:
    """Both ways of a branch, and what leaves a loop by one, have the encoding of the data that were tested."""
    with Graph("written") as graph:
        first = halve(graph.value(12.0)).save(tmp_path / "first.json")
        with graph.loop(iterations=4) as loop:
            x = loop.carry(first)
            half = halve(x).save("half-{auto}.json")
            small, large = graph.branch(is_small, half)
            loop.again(x, large)
        found = graph.call(_same, loop.exited(small)).save("found.json")

    assert run(graph).value(found) < 2


def test_copies_are_not_written_in_another_encoding() -> None:
    """The content is that of the data, so a file in another encoding would not have what its name says."""
    with Graph("other") as graph:
        small, _ = graph.branch(is_small, halve(graph.value(2.0)))
        small.save("small.json")

    with pytest.raises(UsageError, match="has the content of 'Halve data', which is written as pickle and not as json"):
        graph.document()


def test_the_last_iteration_is_collected_alone(run: Run) -> None:
    """A gather and a group-by of the last values of loops in a scatter have one value for each copy, as the run has."""
    with Graph("last") as graph:
        with graph.each(graph.value([80.0, 16.0]), copies=2) as first:
            with graph.loop(iterations=3) as loop:
                x = loop.carry(first)
                half = halve(x)
                loop.again(x, half)
            last = loop.last(half)
        with graph.gather(last, width=1) as chunk:
            pairs = graph.call(_listed, chunk)
        with graph.group_by(last) as column:
            grouped = graph.call(_listed, column)
    half.set(persist=True)

    ended = run(graph)

    assert ended.value(pairs) == [[10.0], [2.0]]
    assert ended.value(grouped) == [[10.0], [2.0]]
    assert ended.value(last) == [10.0, 2.0]
    assert ended.value(half) == [40.0, 20.0, 10.0, 8.0, 4.0, 2.0]


def test_the_last_iteration_of_copies_in_a_loop_is_not_collected() -> None:
    """What is in a scatter inside the loop has to be collected there."""
    with Graph("refused") as graph:
        with graph.loop(iterations=2) as loop:
            x = loop.carry([4.0, 8.0])
            with graph.each(x, copies=2) as one:
                half = halve(one)
            loop.again(x, graph.call(_listed, half))
        gather = graph.gather(loop.last(half))
        with pytest.raises(
            UsageError, match="'Halve data' is in 'Each' inside 'Loop': it cannot be collected after it"
        ):
            gather.__enter__()


def test_a_refused_group_leaves_no_copy_of_a_last_iteration() -> None:
    """The graph is as before the group-by, which needs data of a scatter."""
    with Graph("alone") as graph:
        with graph.loop(iterations=2) as loop:
            x = loop.carry(4.0)
            half = halve(x)
            loop.again(x, half)
        before = len(graph.drawing.nodes)
        group = graph.group_by(loop.last(half))
        with pytest.raises(UsageError, match="is not made in a scatter"):
            group.__enter__()

        assert len(graph.drawing.nodes) == before


def test_nested_loops_carry_into_every_iteration_of_the_outer_one(run: Run) -> None:
    """A value from outside both loops begins each run of the inner loop."""
    with Graph("nested") as graph:
        first = graph.value(8.0)
        with graph.loop(iterations=2, name="Outer") as outer:
            y = outer.carry(100.0)
            with graph.loop(iterations=3, name="Inner") as inner:
                x = inner.carry(first)
                half = halve(x)
                inner.again(x, half)
            outer.again(y, halve(y))
        found = graph.call(_listed, half)
        last = graph.call(_same, inner.last(half))

    ended = run(graph)

    assert ended.value(found) == [4.0, 2.0, 1.0, 4.0, 2.0, 1.0]
    assert ended.value(last) == 1.0


@pytest.mark.slow
def test_what_a_loop_carries_goes_where_data_go(run: Run) -> None:
    """To the copies of a scatter, to a loop inside, into a list, and to a file, in each iteration."""
    with Graph("carried") as graph:
        with graph.loop(iterations=2, name="Outer") as outer:
            x, y, z = outer.carry([1, 2, 3]), outer.carry(64.0), outer.carry(5)
            with graph.each(x, copies=3) as element:
                twice = double(element)
            with graph.loop(iterations=3, name="Inner") as inner:
                kept = inner.carry(y)
                half = halve(kept)
                inner.again(kept, half)
            both = graph.call(_any, [x, y])
            outer.again(x, graph.call(_listed, twice))
            outer.again(y, graph.call(_same, inner.last(half)))
            outer.again(z, double(z))
            seen = z.save("seen-{auto}.json")
        found = graph.call(_listed, twice), graph.call(_listed, half), graph.call(_any, both)

    ended = run(graph)

    assert [ended.value(one) for one in found] == [
        [2, 4, 6, 4, 8, 12],
        [32.0, 16.0, 8.0, 4.0, 2.0, 1.0],
        [[[1, 2, 3], 64.0], [[2, 4, 6], 8.0]],
    ]
    assert ended.value(seen) == [5, 10]


def test_a_loop_carries_one_value_on_as_another(run: Run) -> None:
    """Each number of Fibonacci's is the sum of the two before; after the loop there are those of all iterations."""
    with Graph("fibonacci") as graph:
        with graph.loop(iterations=6) as loop:
            first, second = loop.carry(0), loop.carry(1)
            sums = graph.call(_sum_of, first, second)
            loop.again(first, second)
            loop.again(second, sums)
        found = graph.call(_same, loop.last(sums)), graph.call(_any, loop.last(first)), graph.call(_any, first)
        with pytest.raises(UsageError, match="is not made in a scatter"), graph.group_by(first):
            pass

    ended = run(graph)

    assert [ended.value(one) for one in found] == [13, 5, [0, 1, 1, 2, 3, 5]]


def _sum_of(one: int, other: int) -> int:
    return one + other


def _any(values: Any) -> Any:
    return values


def test_a_branch_leaves_a_loop(run: Run) -> None:
    """The other iterations are skipped, and the value of the last one that ran is used after the loop."""
    with Graph("until") as graph:
        with graph.loop(iterations=50) as loop:
            x = loop.carry(5.0)
            small, large = graph.branch(is_small, halve(x))
            loop.again(x, large)
        found = graph.call(_same, loop.exited(small))

    ended = run(graph)

    assert ended.value(found) == 5 / 2**3
    assert ended.result.states["SKIPPED"] > 0


def _same(x: float) -> float:
    return x


def test_an_mkn_joins_and_spreads(run: Run) -> None:
    """M inputs are joined, K copies work on the result, and their results are joined again."""
    with Graph("mkn") as graph:
        with graph.each(numbers(4), copies=4) as number:
            twice = double(number)
        with graph.mkn(m=2, k=3) as mkn:
            pair = mkn.enter(total, twice)
            back = mkn.leave(_joined, double(pair))
        found = graph.call(_listed, back)

    assert run(graph).value(found) == [3 * 2 * (0 + 2), 3 * 2 * (4 + 6)]


def _joined(values: list[int]) -> int:
    return sum(values)


def test_several_outputs_are_several_data(run: Run) -> None:
    """A function returns a dictionary with the names of its outputs."""
    with Graph("outputs") as graph:
        low, high = _ends(numbers(4))

    ended = run(graph)

    assert (ended.value(low), ended.value(high)) == (0, 3)


@app(outputs=("low", "high"), n_tries=2)
def _ends(values: list[int]) -> dict[str, int]:
    return {"low": min(values), "high": max(values)}


@pytest.mark.slow
def test_a_function_writes_files_and_directories_itself(run: Run) -> None:
    """A parameter with the name of an output is the path to write to; other functions and commands get the path."""
    with Graph("paths") as graph:
        tree = _write_tree(3).store("Directory")
        names = graph.command("ls {tree} > {names}", tree=tree, outputs="names").save("names.txt")
        copied = _copy_first(tree).save("first.txt")
        size = graph.call(_size_of, copied)

    ended = run(graph)

    assert ended.value(names) == "part-0\npart-1\npart-2\n"
    assert (ended.result.directory / "files" / "first.txt").read_text() == "00"
    assert ended.value(size) == 2
    with pytest.raises(dropflow.UsageError, match="missing a required argument: 'parts'"), Graph("lacks"):
        _write_tree()


@pytest.mark.slow
def test_a_program_changes_a_copy_of_its_input(run: Run) -> None:
    """A port for both directions: the command changes a private copy, which becomes the output at the port."""
    with Graph("in place") as graph:
        tree = _write_tree(2).store("Directory")
        changed = graph.command("echo new > {tree}/part-0; touch {tree}/more", tree=tree, outputs="tree")
        changed.store("Directory")
        word = graph.command("echo old > {word}", outputs="word")
        longer = graph.command("echo new >> {word}", word=word, outputs="word")
        found = graph.command(
            "cat {tree}/* {changed}/* {word} {longer} > {found}",
            tree=tree,
            changed=changed,
            word=word,
            longer=longer,
            outputs="found",
        )

    assert run(graph).value(found) == "0001new\n01old\nold\nnew\n"


def test_a_printed_run_that_failed_has_its_root_cause(run: Run) -> None:
    """The cause is one line of limited length; the result does not print its graph."""
    with Graph("broken") as graph:
        graph.command("exit 3; echo > {done}", outputs="done")

    ended = run(graph)
    _, cause = repr(ended).split("\n")
    failure = ended.result.failures[0]

    assert cause.startswith(f"{failure.name} ({failure.drop}): ")
    assert failure.text[:20] in cause
    assert len(cause) <= 200
    assert "PhysicalGraph" not in repr(ended.result)


@pytest.mark.parametrize("change", ["echo more >> {tree}/part-0", "touch {tree}/part-0", "rm {tree}/part-0"])
def test_a_change_of_an_input_is_an_error(run: Run, change: str) -> None:
    """An input that a command changes without a port for it is named with the file, and nothing is committed."""
    with Graph("changed") as graph:
        tree = _write_tree(2).store("Directory")
        done = graph.command(f"{change}; echo > {{done}}", tree=tree, outputs="done").save("done.txt")

    ended = run(graph)
    failure = ended.result.failures[0]

    assert failure.code == "DF112"
    assert "the input 'tree' was changed while it was read: " in failure.text
    assert "part-0" in failure.text
    assert "InputOutput" in failure.hint
    assert not (ended.result.directory / "files" / "done.txt").exists()
    with pytest.raises(AppError, match="has no value"):
        ended.value(done)


def test_a_change_of_a_file_that_no_application_writes_is_a_warning(run: Run, tmp_path: Path) -> None:
    """Programs may fill a directory that exists; the log states that it was changed."""
    (tmp_path / "notes.txt").write_text("one\n")
    with Graph("notes") as graph:
        notes = graph.file(tmp_path / "notes.txt")
        done = graph.command("echo two >> {notes}; echo done > {done}", notes=notes, outputs="done")

    ended = run(graph)

    assert ended.value(done) == "done\n"
    logs = "".join(path.read_text() for path in (ended.result.directory / "logs").iterdir())
    assert "the input 'notes' was changed while it was read: notes.txt" in logs


@app(outputs=("tree",))
def _write_tree(parts: int, tree: str) -> None:
    folder = Path(tree)
    folder.mkdir()
    for part in range(parts):
        (folder / f"part-{part}").write_text(f"0{part}")


@app(outputs=("first",))
def _copy_first(tree: str, first: str) -> None:
    Path(first).write_bytes((Path(tree) / "part-0").read_bytes())


def _size_of(path: str) -> int:
    return Path(path).stat().st_size


def test_commands_read_and_write_files(run: Run, tmp_path: Path) -> None:
    """An input is a path if it is a file or comes from a command, else its text."""
    (tmp_path / "words.txt").write_text("pear\napple\n")
    with Graph("words") as graph:
        words = graph.file(tmp_path / "words.txt")
        ordered = graph.command("sort {words} > {ordered}", words=words, outputs="ordered")
        both = graph.command("cat {ordered} > {out}; echo {n} >> {out}", ordered=ordered, n=double(21), outputs="out")
        both.save("both.txt")

    ended = run(graph)

    assert (ended.result.directory / "files" / "both.txt").read_text() == "apple\npear\n42\n"
    assert ended.value(both) == "apple\npear\n42\n"


def test_a_subtable_is_data_by_its_path(run: Run, tmp_path: Path) -> None:
    """A directory in a measurement set, named as users of casacore name it, reaches a function as its path."""
    (tmp_path / "obs.ms" / "ANTENNA").mkdir(parents=True)
    (tmp_path / "obs.ms" / "ANTENNA" / "table.dat").write_bytes(b"1234")
    with Graph("antennas") as graph:
        found = graph.call(_size_of_table, graph.file(tmp_path / "obs.ms" / "ANTENNA"))

    assert run(graph).value(found) == 4


def _size_of_table(path: dropflow.InputPath) -> int:
    return (Path(path) / "table.dat").stat().st_size


@pytest.mark.parametrize("value", [None, "", "None", "$DLG_X", float("nan"), [], {}, (1, 2), {1, 2}, 2**70, b"x", [[]]])
def test_any_value_reaches_a_function_as_it_is(run: Run, value: Any) -> None:
    """Values that a field cannot hold become data of their own."""
    with Graph("values") as graph:
        found = graph.call(_shown, value)

    assert run(graph).value(found) == f"{type(value).__name__} {value!r}"


def _shown(value: object = 7) -> str:
    return f"{type(value).__name__} {value!r}"


@pytest.mark.slow
def test_parameters_make_a_template(run: Run) -> None:
    """A parameter has a value in numbers, texts and counts; formulas of parameters are computed."""
    with Graph("template") as graph:
        n = graph.parameter("n", 2, minimum=1, maximum=9, description="How many numbers")
        word = graph.parameter("word", "a", options=("a", "b"))
        with graph.each(numbers(2 * n), copies=n * 2) as number:
            twice = double(number)
        result = total(twice, offset=n)
        text = graph.command("echo {word}-{result} > {out}", word=word, result=result, outputs="out")
        text.save(f"text-{n}.txt")

    assert run(graph).value(text) == "a-14\n"
    ended = run(graph, {"n": 3, "word": "b"})
    assert ended.value(text) == "b-33\n"
    assert (ended.result.directory / "files" / "text-3.txt").exists()
    with pytest.raises(dropflow.BadGraphError, match="expected 1 to 9"):
        graph.run({"n": 10})


@pytest.mark.slow
def test_formulas_have_the_values_of_python(run: Run) -> None:
    """With a parameter on the left, on the right, and alone."""

    def listed(n: Any) -> list[Any]:
        return [n + 2, 9 - n, n * 2, n / 4, 1 / n, n // 2, 100 // n, n % 2, 100 % n, -n, -(n + 1) * 2, 2 - -n]

    with Graph("formulas") as graph:
        found = [graph.call(_shown, formula) for formula in listed(graph.parameter("n", 7))]
    done = run(graph)

    assert [done.value(text).partition(" ")[2] for text in found] == [repr(value) for value in listed(7)]


def test_a_subclass_of_app_is_a_component(run: Run) -> None:
    """Components are called by class name, with their parameters."""
    with Graph("component") as graph:
        greeting = graph.component("dlg.apps.simple.HelloWorldApp", greet="Sky", outputs=("hello",))
        copied = graph.component("dlg.apps.simple.CopyApp", inputs={"input": greeting}, name="Again")

    assert run(graph).value(copied) == "Hello Sky"


def test_a_service_runs_beside_its_content(run: Run) -> None:
    """What it writes when it is ready is data for the nodes inside."""
    with Graph("service") as graph, graph.service("echo here > {at}; exec sleep 60", output="at") as at:
        assert isinstance(at, Data)
        found = graph.call(_same_text, at)

    assert run(graph).value(found).strip() == "here"


def _same_text(x: str) -> str:
    return x


def test_subgraphs_and_exclusive_nodes_change_no_values(run: Run) -> None:
    """They group nodes, in the drawing and on machines."""
    with Graph("groups") as graph:
        with graph.subgraph("Begin"):
            count = numbers(3)
        with graph.exclusive():
            found = total(count)

    assert run(graph).value(found) == 3


def test_the_cause_of_a_failure_is_the_error_of_a_value(run: Run) -> None:
    """A value that does not exist because of a failure has the text of the failure."""
    with Graph("failing") as graph:
        found = double(graph.call(_refuse_two, 2))

    ended = run(graph)

    assert not ended.ok
    with pytest.raises(AppError, match="ValueError: two is refused"):
        ended.value(found)


def test_the_former_name_of_a_node_can_be_used_again(run: Run) -> None:
    """They are two nodes with different ids, also if a name goes back and forth."""
    with Graph("names") as graph:
        first = graph.value(3, name="start").renamed("other")
        second = graph.value(4, name="start")
        found = total([first, second])
        first.renamed("first").renamed("other")

    assert first.node.id != second.node.id
    assert first.name == "other"
    assert run(graph).value(found) == 7


def test_intermediate_values_need_to_persist(run: Run) -> None:
    """A content in memory is removed after its last consumer, unless the graph keeps it."""
    with Graph("kept") as graph:
        first = numbers(3)
        kept = numbers(4).set(persist=True)
        found = graph.call(_lengths, [first, kept])

    ended = run(graph)

    assert ended.value(kept) == [0, 1, 2, 3]
    with pytest.raises(NotFoundError, match="set\\(persist=True\\)"):
        ended.value(first)
    assert ended.value(found) == [3, 4]


def _lengths(lists: list[list[int]]) -> list[int]:
    return [len(one) for one in lists]


def _wrong_type(graph: Graph) -> None:
    total(graph.value("text"))


def _wrong_element(graph: Graph) -> None:
    with graph.each(graph.call(_texts), copies=2) as text:
        double(text)


def _texts() -> list[str]:
    return ["a", "b"]


def _not_collected(graph: Graph) -> None:
    with graph.each(numbers(2), copies=2) as number:
        kept = double(number)
    double(kept)


def _missing(_: Graph) -> None:
    total()


def _unknown(_: Graph) -> None:
    total(numbers(2), extra=1)


def _other_scatter(graph: Graph) -> None:
    with graph.each(numbers(2), copies=2, name="One") as number:
        kept = double(number)
    with graph.each(numbers(2), copies=2, name="Two"):
        double(kept)


def _other_graph(graph: Graph) -> None:
    other = Graph("other")
    graph.call(double, other.value(1))


def _iterated(_: Graph) -> None:
    list(numbers(2))


def _tested(_: Graph) -> None:
    if numbers(2):
        pass


def _no_copies(graph: Graph) -> None:
    with graph.each(numbers(2), copies=-1):
        pass


def _never_again(graph: Graph) -> None:
    with graph.loop(iterations=2) as loop:
        halve(loop.carry(1.0))


def _no_carry(graph: Graph) -> None:
    with graph.loop(iterations=2):
        numbers(2)


def _unused_group(graph: Graph) -> None:
    with graph.each(numbers(2), copies=2) as number:
        kept = double(number)
    with graph.group_by(kept):
        pass


def _no_encoding(_: Graph) -> None:
    numbers(2).save("numbers.xyz")


def _no_setting(_: Graph) -> None:
    double.options(tries=2)


def _no_class(graph: Graph) -> None:
    graph.component("dlg.apps.simple.CopyAp")


def _no_parameter(graph: Graph) -> None:
    graph.component("dlg.apps.simple.CopyApp", bufsiz=1)


def _no_placeholder(graph: Graph) -> None:
    graph.command("sort", words=graph.value(1))


def _hidden(graph: Graph) -> None:
    graph.call(_shown, {"inside": numbers(2)})


def _list_of_one(_: Graph) -> None:
    total([numbers(2)])


def _out_of_range(graph: Graph) -> None:
    graph.parameter("n", -1, minimum=0)


def _text_formula(graph: Graph) -> None:
    graph.parameter("word", "a") + 1


def _no_value(graph: Graph) -> None:
    graph.parameter("n")


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (_wrong_type, "the argument 'values' is str, expected list\\[int\\]"),
        (_wrong_element, "the argument 'x' is str, expected int"),
        (_not_collected, "the argument 'x' is list\\[int\\], expected int"),
        (_missing, "missing a required argument: 'values'"),
        (_unknown, "unexpected keyword argument 'extra'"),
        (_other_scatter, "'Double data' is in 'One' and 'Double .*' in 'Two': there is no rule for their copies"),
        (_other_graph, "'Value' is data of graph 'other'"),
        (_iterated, "its elements are not known before it runs"),
        (_tested, "its value is not known before it runs"),
        (_no_copies, "copies is -1, expected a whole number of at least 0"),
        (_never_again, "has no next value"),
        (_no_carry, "nothing goes from one iteration of the loop to the next"),
        (_unused_group, "no function uses the group"),
        (_no_encoding, "how to write 'Numbers data' does not follow from the name 'numbers.xyz'"),
        (_no_setting, "applications have no setting 'tries'"),
        (_no_class, "unknown class 'dlg.apps.simple.CopyAp'"),
        (_no_parameter, "DALiuGEApp has no parameter 'bufsiz'"),
        (_no_placeholder, "the command does not have {words}"),
        (_hidden, "is a dict with data or parameters of the graph in it"),
        (_list_of_one, "is a list of 1, expected several data"),
        (_out_of_range, "the parameter 'n' is -1, which is not in its range"),
        (_text_formula, "the parameter {word} is a String, which has no '\\+'"),
        (_no_value, "the parameter 'n' has neither a value nor a type"),
    ],
)
def test_a_mistake_is_an_error_of_its_call(mistake: Callable[[Graph], None], message: str) -> None:
    """The error says what is wrong and what to do, and the call adds nothing to the graph."""
    with Graph("mistakes") as graph, pytest.raises(UsageError, match=message) as caught:
        mistake(graph)

    assert caught.value.hint


def test_a_wrong_call_adds_nothing() -> None:
    """So that it can be corrected and made again in a notebook."""
    with Graph("again") as graph:
        before = repr(graph)
        with pytest.raises(UsageError, match="expected list"):
            total("text")
        assert repr(graph) == before


def _plus(x: int, y: int) -> int:
    return x + y


def test_a_wrong_call_leaves_no_reader_of_what_is_carried(run: Run) -> None:
    """Neither in the loop, nor behind it, where a copy of each iteration is made first."""
    with Graph("again") as graph:
        with graph.loop(iterations=3) as loop:
            carried = loop.carry(1)
            with pytest.raises(UsageError, match="expected int"):
                graph.call(_plus, carried, "text")
            loop.again(carried, graph.call(_plus, carried, 2))
        with pytest.raises(UsageError, match="expected int"):
            double(carried)
        found = graph.call(_listed, carried)

    assert run(graph).value(found) == [1, 3, 5]


def test_a_wrong_call_does_not_use_a_group() -> None:
    """A group-by needs a call that was accepted."""
    with Graph("again") as graph:
        with graph.each(graph.call(numbers, 3), copies=3) as number:
            twice = double(number)
        with (
            pytest.raises(UsageError, match="no function uses the group"),
            graph.group_by(twice) as group,
            pytest.raises(UsageError, match="expected int"),
        ):
            total(group, offset="text")


# Mistakes in programs.


@pytest.mark.parametrize("options", [{"workers": -1}, {"workers": "2"}, {"until": float("nan")}, {"runer": "inline"}])
def test_an_option_of_a_run_that_cannot_be_used_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    """Its name is in the message, and nothing runs."""
    with Graph("one") as graph:
        double(1)

    with pytest.raises(UsageError, match=next(iter(options))):
        graph.run(directory=tmp_path / "run", **options)

    assert not (tmp_path / "run").exists()


def test_a_parameter_is_no_data() -> None:
    """A function would get the parameter, and not its value."""
    with Graph("values") as graph, pytest.raises(UsageError, match=r"\{count\} cannot be data"):
        graph.value(graph.parameter("count", 3))


def test_data_of_another_graph_are_refused_in_the_graph_that_is_open() -> None:
    """The call would add its node to a graph that was left."""
    with Graph("first") as first:
        made = double(1)

    with Graph("second"), pytest.raises(UsageError, match="data of graph 'first'"):
        double(made)

    assert len(first.drawing.nodes) == 2


def test_an_empty_command_is_refused() -> None:
    """It has no program, and so no name."""
    with Graph("commands") as graph, pytest.raises(UsageError, match="the command is empty"):
        graph.command(" ")


def test_the_value_of_a_name_is_refused(run: Run) -> None:
    """Values are asked by the data that a call has returned."""
    with Graph("one") as graph:
        double(1)

    with pytest.raises(UsageError, match="'Double' is not data of the graph"):
        run(graph).value("Double")  # type: ignore[arg-type]


def test_files_of_a_session_are_read_in_their_format() -> None:
    """Tables, as those of a run on this machine; of a directory, or of a path, the error tells how to get it."""
    pytest.importorskip("pandas")
    with Graph("there") as graph:
        table = spectrum(3).save("table.csv")
        plain = graph.call(_any, spectrum(2)).save("plain.dat", encoding="path")
    physical = graph.translate().graph
    rows = {template.key: row for row, template in enumerate(physical.templates)}
    results = [
        ResultInfo(drop=rows[data.node.id], oid=data.name, name=data.name, node="n", path=f"results/{path}", size=9)
        for data, path in ((table, "table.csv"), (plain, "plain.dat"))
    ]
    client: Any = SimpleNamespace(
        results=lambda _: SimpleNamespace(results=results),
        data=lambda *_: SimpleNamespace(chunks=[b"a,b\n", b"1,2\n"]),
    )
    session = SubmittedGraph(client, "s", physical)

    assert session.value(table).to_dict("list") == {"a": [1], "b": [2]}
    with pytest.raises(UsageError, match="is a file on node n") as caught:
        session.value(plain)
    assert "dropflow fetch s" in caught.value.hint


def test_a_graph_that_cannot_be_written_leaves_the_file(tmp_path: Path) -> None:
    """On a full disk, the graph that was saved there before is still there; a link stays a link."""
    with Graph("kept") as graph:
        double(2)
    link = tmp_path / "link.graph"
    link.symlink_to("real.graph")
    before = graph.save(tmp_path / "real.graph").read_bytes()
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, most))
    try:
        with pytest.raises(StorageError, match="the graph cannot be written"):
            graph.save(link)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    assert link.read_bytes() == before
    assert (graph.save(link).read_bytes(), link.is_symlink()) == (before, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.graph", "real.graph"]


def test_names_that_are_no_unicode_are_refused() -> None:
    """As a file may have, in the name of a node or in a field."""
    name = os.fsdecode(b"/data/m\xe9.fits")
    with Graph("names") as graph:
        with pytest.raises(UsageError, match=r"'m\\udce9.fits' is no Unicode text"):
            graph.file(name)
        graph.file(name, name="me")

    with pytest.raises(UsageError, match="is no Unicode text"):
        graph.document()


def test_numbers_of_numpy_and_paths_become_fields(run: Run, tmp_path: Path) -> None:
    """As numbers and texts of Python have them; what no field can have is refused when the graph is written."""
    with Graph("fields") as graph:
        count = graph.parameter("count", np.int64(2), minimum=np.float64(1))
        with graph.scatter(copies=np.int64(2)):
            shown = double.options(n_tries=np.int64(3))(count).set(data_volume=np.float32(0.5))
        written = graph.call(_any, [1]).store("File", filepath=tmp_path / "a.json")
        written.node.own_encoding = "json"
    ended = run(graph)
    fields = {field.name: (field.value, field.type) for field in shown.node.fields.values()}

    assert (ended.value(shown), ended.value(written)) == ([4, 4], [1])
    assert (tmp_path / "a.json").exists()
    assert fields["data_volume"] == (0.5, "Float")
    shown.set(data_volume=object())
    with pytest.raises(UsageError, match="a field has a value that no file of a graph can have"):
        graph.document()
