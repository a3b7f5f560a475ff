"""What a node manager that is started again tells of the sessions that it ran before."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from dropflow.errors import ConflictError, GoneError, NotFoundError
from dropflow.graph.builder import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.rest.schema import DropQuery, SubmitQuery
from managers.node.manager import NodeManager
from managers.node.past import PastSession
from tests.managers.node.conftest import until


def _function(code: str) -> dict[str, object]:
    fields = (Argument(name="func_name", value="f"), Argument(name="func_code", value=code))
    return {"component": "dlg.apps.pyfunc.PyFuncApp", "arguments": fields}


def _graph(code: str) -> PhysicalGraph:
    """A number, and what a function makes of it."""
    drawing = GraphBuilder("past").app("ONE", **_function("def f(): return 20")).data("one")
    drawing.app("TWO", **_function(code)).data("two")
    drawing.connect("ONE", "one", source_port="out").connect("one", "TWO", target_port="x")
    return drawing.connect("TWO", "two", source_port="out").build()


def _copy(root: Path, directory: Path) -> None:
    """The directory as kill -9 would leave it: what is on the disk now."""
    for path in sorted(root.rglob("*")):
        target = directory / path.relative_to(root)
        if path.is_dir() and not path.is_symlink():
            target.mkdir(parents=True, exist_ok=True)
        elif path.is_file() and "tmp" not in path.relative_to(root).parts:
            target.write_bytes(path.read_bytes())


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes what a test opens."""
    with ExitStack() as opened:
        yield opened


def _node(stack: ExitStack, root: Path) -> NodeManager:
    return stack.enter_context(closing(NodeManager("a", root=root, runner="threads", workers=2)))


def _run(node: NodeManager, code: str) -> None:
    node.submit(_graph(code), SubmitQuery(session="s"))
    until(node, "s", lambda detail: bool(detail.finished))
    node._sessions["s"]._thread.join()


@pytest.mark.parametrize("code", ["def f(x): return x + 1", "def f(x): return x / 0"])
def test_a_session_that_was_over_is_told_as_before(code: str, stack: ExitStack, tmp_path: Path) -> None:
    """State, counts, drops, failures, results, logs and journal are what they were, finished or failed."""
    before = _node(stack, tmp_path)
    _run(before, code)
    told = _told(before)
    before.close()

    assert _told(_node(stack, tmp_path)) == told


def _told(node: NodeManager) -> dict[str, object]:
    results = node.results("s").results
    return {
        "list": node.sessions(),
        "detail": node.session("s"),
        "watched": node.watch("s", version=0, seconds=0.0),
        "drops": [drop for drop in node.drops("s", DropQuery()).drops if drop.name != "one"],
        "failures": node.failures("s"),
        "drop": node.drop("s", "past_TWO_0"),
        "results": results,
        "contents": [b"".join(node.data("s", result.oid).chunks) for result in results],
        "journal": b"".join(node.journal("s").chunks),
        "graph": node.graph("s").drops,
    }


def test_a_session_that_was_running_is_told_as_failed(stack: ExitStack, tmp_path: Path) -> None:
    """What was settled stays so, the rest was cancelled, and the reason names the node and those drops."""
    node = _node(stack, tmp_path / "first")
    node.submit(_graph("def f(x):\n    import time\n    time.sleep(1)"), SubmitQuery(session="s"))
    until(node, "s", lambda detail: detail.settled == 2)
    _copy(tmp_path / "first", tmp_path / "second")
    again = _node(stack, tmp_path / "second")
    detail = again.session("s")
    (failure,) = again.failures("s").failures

    assert detail.status == "FAILED"
    assert detail.states == {"COMPLETED": 2, "CANCELLED": 2}
    assert "node a ended while the session ran" in detail.text
    assert (failure.name, failure.drops) == ("a", ("past_TWO_0", "past_two_0"))
    assert [drop.state for drop in again.drops("s", DropQuery(limit=10)).drops] == [
        "COMPLETED",
        "COMPLETED",
        "CANCELLED",
        "CANCELLED",
    ]
    assert again.drop("s", "past_two_0").reasons
    assert again.nodes()[0].sessions == 0
    with pytest.raises(GoneError, match="went with the process"):
        again.data("s", "past_one_0")
    assert _node(stack, tmp_path / "second").session("s") == detail


def test_the_name_is_taken_until_it_is_deleted(stack: ExitStack, tmp_path: Path) -> None:
    """A new session of that name is refused in words; after a delete nothing is left and the name is free."""
    first = _node(stack, tmp_path)
    _run(first, "def f(x): return x")
    first.close()
    node = _node(stack, tmp_path)
    with pytest.raises(ConflictError, match=r"session 's' already, FINISHED") as refusal:
        node.submit(_graph("def f(x): return x"), SubmitQuery(session="s"))
    with pytest.raises(ConflictError, match="is over"):
        node.start("s", node.session("s").epoch)
    node.cancel("s", "too late")
    status = node.session("s").status
    node.delete("s")
    with pytest.raises(NotFoundError):
        node.session("s")
    is_left = (tmp_path / "sessions" / "s").exists()
    _run(node, "def f(x): return x")

    assert "delete it" in refusal.value.hint
    assert (status, is_left) == ("FINISHED", False)
    assert node.session("s").status == "FINISHED"


def test_what_was_never_prepared_leaves_nothing(stack: ExitStack, tmp_path: Path) -> None:
    """A manager that ended in the middle of preparing leaves no directory that would block the name for ever."""
    (tmp_path / "sessions" / "half" / "tmp").mkdir(parents=True)
    node = _node(stack, tmp_path)

    assert node.sessions() == ()
    assert not (tmp_path / "sessions" / "half").exists()


@pytest.mark.parametrize("name", ["deployment.json", "slice.dfs", "journal.dfj"])
def test_a_damaged_directory_is_left_alone(name: str, stack: ExitStack, tmp_path: Path) -> None:
    """It keeps no node manager from starting, and is still there for people to look at."""
    first = _node(stack, tmp_path)
    _run(first, "def f(x): return x")
    first.close()
    directory = tmp_path / "sessions" / "s"
    (directory / "end.msgpack").unlink()
    (directory / name).write_bytes(b"rubbish")
    node = _node(stack, tmp_path)

    with pytest.raises(ConflictError, match="of which nothing is known"):
        node.submit(_graph("def f(x): return x"), SubmitQuery(session="s"))

    assert node.sessions() == ()
    assert directory.exists()


def test_a_journal_that_ends_in_the_middle_of_an_event_is_read_so_far(stack: ExitStack, tmp_path: Path) -> None:
    """Whatever kill -9 cuts off, the session is told with what was whole."""
    first = _node(stack, tmp_path / "first")
    _run(first, "def f(x): return x")
    journal = (tmp_path / "first" / "sessions" / "s" / "journal.dfj").read_bytes()
    settled = []
    for size in range(len(journal) // 2, len(journal), 7):
        root = tmp_path / f"cut-{size}"
        _copy(tmp_path / "first", root)
        (root / "sessions" / "s" / "end.msgpack").unlink()
        (root / "sessions" / "s" / "journal.dfj").write_bytes(journal[:size])
        with closing(NodeManager("a", root=root, runner="threads", workers=1)) as node:
            settled += [info.states.get("COMPLETED", 0) for info in node.sessions()]

    assert settled == sorted(settled)
    assert settled
    assert isinstance(_node(stack, root)._past.get("s"), PastSession)
