"""A node manager that is started again, and the sessions that it ran before."""

import os
import pickle
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dropflow.api.drop_records import DropQuery
from dropflow.api.requests import SubmitQuery
from dropflow.errors import BadFileError, ConflictError, GoneError, NotFoundError, StorageError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from managers.deployment import Deployment
from managers.node.directory import SessionEnd, read_checksummed, write_checksummed
from managers.node.finished_sessions import DamagedSession, FinishedSession, recover_all
from managers.node.manager import NodeManager
from tests.managers.node.conftest import settle, until
from tests.recovery_graphs import replacing


def _function(code: str) -> dict[str, object]:
    fields = (Argument(name="func_name", value="f"), Argument(name="func_code", value=code))
    return {"component": "dlg.apps.pyfunc.PyFuncApp", "arguments": fields}


def _graph(code: str) -> PhysicalGraph:
    """Return a graph of a number and a function of it."""
    drawing = GraphBuilder("past").app("ONE", **_function("def f(): return 20")).data("one")
    drawing.app("TWO", **_function(code)).data("two")
    drawing.connect("ONE", "one", source_port="out").connect("one", "TWO", target_port="x")
    return drawing.connect("TWO", "two", source_port="out").build()


def _copy(root: Path, directory: Path) -> None:
    """Copy the directory as kill -9 would leave it: what is on the disk now."""
    for folder, _, files in os.walk(root):  # which passes over folders of 'tmp' that the node removes meanwhile
        target = directory / Path(folder).relative_to(root)
        target.mkdir()
        for name in files if "tmp" not in Path(folder).relative_to(root).parts else ():
            if (path := Path(folder, name)).is_file():
                (target / name).write_bytes(path.read_bytes())


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes what a test opens."""
    with ExitStack() as opened:
        yield opened


def _node(stack: ExitStack, root: Path, *, name: str = "a") -> NodeManager:
    return stack.enter_context(closing(NodeManager(name, root=root, runner="threads", workers=2)))


def _run(node: NodeManager, code: str, session: str = "s") -> None:
    node.submit(_graph(code), SubmitQuery(session=session))
    until(node, session, lambda detail: bool(detail.finished))
    settle(node, session)


def pickled(node: NodeManager, name: str) -> object:
    """Return the value that a function wrote to a drop."""
    return pickle.loads(b"".join(node.data("s", f"past_{name}_0").chunks))


@pytest.mark.parametrize("code", ["def f(x): return x + 1", "def f(x): return x / 0"])
def test_an_ended_session_is_reported_as_before_the_restart(code: str, stack: ExitStack, tmp_path: Path) -> None:
    """State, counts, drops, failures, results, logs and journal do not change, for finished and failed sessions."""
    before = _node(stack, tmp_path)
    _run(before, code)
    before_restart = _reported(before)
    before.close()

    assert _reported(_node(stack, tmp_path)) == before_restart


def _reported(node: NodeManager) -> dict[str, object]:
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


@pytest.mark.slow
def test_results_that_are_released_are_gone(stack: ExitStack, tmp_path: Path) -> None:
    """Before and after a restart: no file, no result, and the error for its data says why; the rest stays."""
    node = _node(stack, tmp_path)
    drawing = GraphBuilder("past")
    for name in ("one", "two"):
        drawing.app(name.upper(), **_function("def f(): return 20")).data(name)
        drawing.connect(name.upper(), name, source_port="out")
    node.submit(drawing.build(), SubmitQuery(session="s"))
    until(node, "s", lambda detail: bool(detail.finished))
    settle(node, "s")
    first, second = node.results("s").results
    files = tmp_path / "sessions" / "s"

    node.release("s", [first.drop, 0, 99])
    node.release("s", [first.drop])

    assert (files / second.path).exists()
    assert not (files / first.path).exists()
    for at in (node, _node(stack, tmp_path)):
        assert at.results("s").results == (second,)
        assert not at.drop("s", first.oid).has_data
        with pytest.raises(GoneError, match=rf"{first.oid} was released by a client after the end"):
            at.data("s", first.oid)
        assert b"".join(at.data("s", second.oid).chunks)
        at.close()
    last = _node(stack, tmp_path)
    last.release("s", [second.drop])
    assert last.results("s").results == ()


def test_results_of_a_session_that_is_not_finished_stay(stack: ExitStack, tmp_path: Path) -> None:
    """What failed or runs may be continued, and then needs its contents."""
    node = _node(stack, tmp_path)
    _run(node, "def f(x): return x / 0")
    with pytest.raises(ConflictError, match="'s' is FAILED, and not FINISHED"):
        node.release("s", [1])
    with pytest.raises(NotFoundError, match="'t'"):
        node.release("t", [1])


def test_a_node_with_another_name_does_not_take_over_a_session(stack: ExitStack, tmp_path: Path) -> None:
    """The session is listed as FAILED, with the name that the node must have."""
    first = _node(stack, tmp_path)
    _run(first, "def f(x): return x")
    first.close()
    (tmp_path / "sessions" / "s" / "end.msgpack").unlink()
    renamed = _node(stack, tmp_path, name="z")

    assert renamed.session("s").status == "FAILED"
    assert "the session ran on a, not on node z" in renamed.session("s").text


@pytest.mark.slow
def test_a_session_of_a_newer_format_is_kept(stack: ExitStack, tmp_path: Path) -> None:
    """A node of an earlier version lists it with both versions; one of its own version has all of it afterwards."""
    first = _node(stack, tmp_path)
    _run(first, "def f(x): return x")
    first.close()
    directory = tmp_path / "sessions" / "s"
    (directory / "end.msgpack").unlink()
    journal = directory / "journal.dfj"
    written = journal.read_bytes()
    journal.write_bytes(written.replace(b"DFJ2", b"DFJ9", 1))
    earlier = _node(stack, tmp_path)
    listed = earlier.session("s")
    earlier.close()
    journal.write_bytes(written)

    assert listed.status == "FAILED"
    assert "the journal has version 9 of the format; this dropflow reads version 2" in listed.text
    assert b"".join(_node(stack, tmp_path).data("s", "past_two_0").chunks)


@pytest.mark.slow
def test_a_session_that_was_running_is_failed(stack: ExitStack, tmp_path: Path) -> None:
    """Settled drops stay settled, the others are CANCELLED, and the reason names the node and those drops."""
    node = _node(stack, tmp_path / "first")
    foreign = replace(_graph("def f(x):\n    import time\n    time.sleep(1)"), places=("elsewhere",))
    node.submit(foreign, SubmitQuery(session="s", user="alice", request_id="7"))
    until(node, "s", lambda detail: detail.settled == 2)
    _copy(tmp_path / "first", tmp_path / "second")
    again = _node(stack, tmp_path / "second")
    detail = again.session("s")
    (failure,) = again.failures("s").failures

    assert detail.status == "FAILED"
    assert (detail.user, detail.request_id) == ("alice", "7")
    assert detail.states == {"COMPLETED": 2, "CANCELLED": 2}
    assert "node a ended while the session ran" in detail.text
    assert "'elsewhere'" in detail.notes[0]  # the note of the deployment
    assert (failure.name, failure.drops) == ("a", ("past_TWO_0", "past_two_0"))
    assert [drop.state for drop in again.drops("s", DropQuery(limit=10)).drops] == [
        "COMPLETED",
        "COMPLETED",
        "CANCELLED",
        "CANCELLED",
    ]
    assert again.drop("s", "past_two_0").reasons
    assert again.nodes()[0].sessions == 0
    assert again.data("s", "past_one_0").size == node.data("s", "past_one_0").size
    assert _node(stack, tmp_path / "second").session("s") == detail


@pytest.mark.slow
def test_the_name_is_taken_until_it_is_deleted(stack: ExitStack, tmp_path: Path) -> None:
    """A new session of that name is refused with a hint; after a delete nothing is left and the name is free."""
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
    with pytest.raises(NotFoundError, match="no session 's' on node a"):
        node.session("s")
    is_left = (tmp_path / "sessions" / "s").exists()
    _run(node, "def f(x): return x")

    assert "delete it" in refusal.value.hint
    assert (status, is_left) == ("FINISHED", False)
    assert node.session("s").status == "FINISHED"


@pytest.mark.slow
@pytest.mark.parametrize("is_journaled", [True, False])
def test_a_node_that_is_killed_after_the_answer_to_a_cancel_finds_the_session_cancelled(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_journaled: bool
) -> None:
    """The request is on the disk before the answer, whether the session's thread has come to it or not."""
    node = _node(stack, tmp_path / "first")
    gate = tmp_path / "gate"
    code = f"def f(x):\n    import os, time\n    while not os.path.exists({str(gate)!r}): time.sleep(0.01)"
    node.submit(_graph(code), SubmitQuery(session="s"))
    until(node, "s", lambda detail: detail.settled == 2)
    if not is_journaled:
        monkeypatch.setattr("dropflow.execution.session.Session.cancel", lambda *_: None)
    assert node.cancel("s", "enough", grace=1000.0).status == "CANCELLING"
    _copy(tmp_path / "first", tmp_path / "second")
    monkeypatch.undo()
    again = _node(stack, tmp_path / "second").session("s")
    gate.touch()
    node.cancel("s")

    assert (again.status, again.text, again.failures) == ("CANCELLED", "cancelled: enough", ())
    assert again.states == {"COMPLETED": 2, "CANCELLED": 2}


@pytest.mark.slow
def test_a_full_disk_does_not_prevent_a_cancel(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The session is cancelled all the same, and the log says that a later process will not know."""
    node = _node(stack, tmp_path)
    node.submit(_graph("def f(x):\n    import time\n    while True: time.sleep(0.01)"), SubmitQuery(session="s"))
    until(node, "s", lambda detail: detail.settled == 2)

    def write_cancel(*_: object) -> None:
        raise StorageError("no space left on device")

    monkeypatch.setattr("managers.node.directory.SessionDirectory.write_cancel", write_cancel)
    node.cancel("s", "enough")
    ended = until(node, "s", lambda detail: detail.is_over)

    assert ended.status == "CANCELLED"
    assert "no space left on device" in caplog.text


@pytest.mark.slow
def test_a_damaged_request_to_cancel_is_one(stack: ExitStack, tmp_path: Path) -> None:
    """The session was to be cancelled, though the reason is lost."""
    node = _node(stack, tmp_path / "first")
    node.submit(_graph("def f(x):\n    import time\n    while True: time.sleep(0.01)"), SubmitQuery(session="s"))
    until(node, "s", lambda detail: detail.settled == 2)
    _copy(tmp_path / "first", tmp_path / "second")
    (tmp_path / "second" / "sessions" / "s" / "cancel.json").write_bytes(b"{")
    again = _node(stack, tmp_path / "second").session("s")

    assert (again.status, again.text) == ("CANCELLED", "cancelled")


def test_a_half_prepared_session_is_removed(stack: ExitStack, tmp_path: Path) -> None:
    """A process that ended in the middle of preparing leaves no directory that would block the name."""
    (tmp_path / "sessions" / "half" / "tmp").mkdir(parents=True)
    (tmp_path / "sessions" / "half" / "graph.dfg").touch()
    (tmp_path / "sessions" / "none").mkdir()
    node = _node(stack, tmp_path)

    assert node.sessions() == ()
    assert not [*(tmp_path / "sessions").iterdir()]


def test_a_directory_that_is_of_no_session_stays(stack: ExitStack, tmp_path: Path) -> None:
    """It may be that of a person who keeps old sessions in it: it is shown, and removed only on request."""
    kept = tmp_path / "sessions" / "kept" / "old" / "journal.dfj"
    kept.parent.mkdir(parents=True)
    kept.touch()
    node = _node(stack, tmp_path)

    assert [(session.session, session.status) for session in node.sessions()] == [("kept", "FAILED")]
    assert "deployment.json: the file cannot be read" in node.session("kept").text
    assert kept.exists()


FILE, MEMORY = "dlg.data.drops.file.FileDROP", "dlg.data.drops.memory.InMemoryDROP"
WAIT = """def f(*things):
    import os, time
    while not os.path.exists({gate!r}):
        time.sleep(0.01)
"""


def _branches(gate: Path) -> PhysicalGraph:
    """Return drops of each kind, and an application behind most of them that waits at `gate`."""
    drawing = GraphBuilder("past")
    for name in ("leaf", "file", "small", "big", "used"):
        body = "bytes(5000)" if name == "big" else repr(name)
        drawing.app(f"make-{name}", **_function(f"def f(): return {body}"))
        drawing.data(name, component=FILE if name == "file" else MEMORY)
        drawing.connect(f"make-{name}", name, source_port="out")
    drawing.app("USE", **_function("def f(x): return x")).data("made")
    drawing.connect("used", "USE", target_port="x").connect("USE", "made", source_port="out")
    drawing.app("WAIT", **_function(WAIT.format(gate=str(gate)))).data("end")
    for name in ("small", "big", "made", "file"):
        drawing.connect(name, "WAIT", target_port=name)
    return drawing.connect("WAIT", "end", source_port="out").build()


def _killed(stack: ExitStack, tmp_path: Path) -> NodeManager:
    """Return a node whose earlier process was killed while a session waited for its last application."""
    node = _node(stack, tmp_path / "first")
    stack.callback((tmp_path / "gate").touch)
    node.submit(_branches(tmp_path / "gate"), SubmitQuery(session="s"))
    until(node, "s", lambda detail: detail.settled == 12 and detail.running == 1)
    _copy(tmp_path / "first", tmp_path / "second")
    return _node(stack, tmp_path / "second")


@pytest.mark.slow
def test_contents_committed_before_a_crash_are_served_after_it(stack: ExitStack, tmp_path: Path) -> None:
    """Leaves and files are results, small contents are in the journal; errors for others have the reason."""
    node = _killed(stack, tmp_path)

    assert {result.oid: result.path for result in node.results("s").results} == {
        "past_leaf_0": "results/past_leaf_0.pkl",
        "past_file_0": "files/past_file_0",
    }
    for name in ("leaf", "file", "small"):
        assert pickled(node, name) == name
    with pytest.raises(GoneError, match="was released after its last consumer"):
        node.data("s", "past_used_0")
    with pytest.raises(GoneError, match="was only in memory, and was lost when the process"):
        node.data("s", "past_big_0")
    with pytest.raises(NotFoundError, match="it is CANCELLED"):
        node.data("s", "past_end_0")


@pytest.mark.slow
def test_a_missing_result_is_listed_and_its_fetch_fails(stack: ExitStack, tmp_path: Path) -> None:
    """A missing or damaged content is still listed as a result, so that fetching it is an error."""
    first = _node(stack, tmp_path / "first")
    _run(first, "def f(x): return 'abc'")
    first.close()
    session = tmp_path / "first" / "sessions" / "s"
    (result,) = (session / "results").iterdir()
    original = result.read_bytes()
    outcomes = {}
    for is_interrupted in (False, True):
        for case, content in {"gone": None, "short": original[:-1], "damaged": b"?" + original[1:]}.items():
            root = tmp_path / f"{case}-{is_interrupted}"
            _copy(tmp_path / "first", root)
            copy = root / "sessions" / "s"
            if is_interrupted:
                (copy / "end.msgpack").unlink()
            if content is None:
                (copy / "results" / result.name).unlink()
            else:
                (copy / "results" / result.name).write_bytes(content)
            node = _node(stack, root)
            with pytest.raises(GoneError, match="past_two_0") as refusal:
                node.data("s", "past_two_0")
            assert [listed.oid for listed in node.results("s").results] == ["past_two_0"]
            outcomes[case, is_interrupted] = (refusal.value.text, len(node.session("s").notes))

    for is_interrupted in (False, True):
        assert "is not there any more" in outcomes["gone", is_interrupted][0]
        assert (
            f"has {len(original) - 1} bytes where {len(original)} were committed"
            in outcomes["short", is_interrupted][0]
        )
        assert "has CRC-32" in outcomes["damaged", is_interrupted][0]
    assert [outcomes[case, True][1] for case in ("gone", "short", "damaged")] == [1, 1, 0]


@pytest.mark.slow
def test_files_that_were_replaced_are_no_results(stack: ExitStack, tmp_path: Path) -> None:
    """Of the iterations that wrote one file, the last is listed, before and after a restart; others are replaced."""
    first = _node(stack, tmp_path / "first")
    first.submit(replacing(tmp_path / "marks", 0.0, steps=3), SubmitQuery(session="s"))
    until(first, "s", lambda detail: bool(detail.finished))

    def check(node: NodeManager) -> None:
        contents = {result.name: node.data("s", result.oid) for result in node.results("s").results}
        assert set(contents) == {"log3", "end"}
        assert b"".join(contents["log3"].chunks).decode().split()[-1] == "300"
        with pytest.raises(GoneError, match="log1_0 was replaced by that of a later drop"):
            node.data("s", "replacing_log1_0")
        assert node.session("s").notes == ()

    check(first)
    settle(first, "s")
    first.close()
    _copy(tmp_path / "first", tmp_path / "killed")
    (tmp_path / "killed" / "sessions" / "s" / "end.msgpack").unlink()
    check(_node(stack, tmp_path / "first"))
    check(_node(stack, tmp_path / "killed"))


def test_a_directory_that_cannot_be_listed_does_not_keep_a_node_from_starting(tmp_path: Path) -> None:
    """What is wrong with one session, whatever it is, is the finding of that session."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "files").write_bytes(b"no directory")
    recovered = recover_all(tmp_path, "a")
    assert isinstance(recovered["s"], DamagedSession)
    assert "Not a directory" in recovered["s"].finding


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deployment.json", "graph.dfg", "journal.dfj"])
def test_a_session_that_cannot_be_read_is_failed(name: str, stack: ExitStack, tmp_path: Path) -> None:
    """The node manager starts and serves all other sessions; the damaged one is listed, and can be deleted."""
    first = _node(stack, tmp_path)
    _run(first, "def f(x): return x")
    _run(first, "def f(x): return x", session="sound")
    epoch = first.session("s").epoch
    first.close()
    directory = tmp_path / "sessions" / "s"
    (directory / "end.msgpack").unlink()
    (directory / name).write_bytes(b"rubbish")
    node = _node(stack, tmp_path)
    detail = node.session("s")
    refused = []
    for ask in (node.results, node.graph, lambda session: node.data(session, "past_two_0")):
        with pytest.raises(GoneError, match=f"the files of session 's' on node .* cannot be read: .*{name}"):
            refused.append(ask("s"))

    assert (detail.status, detail.nodes, refused) == ("FAILED", ("a",), [])
    assert detail.epoch == epoch > 0  # or a manager above would take it for another session
    assert f"{name}: " in detail.text
    assert [failure.text for failure in node.failures("s").failures] == [detail.text]
    assert node.info().findings == (detail.text,)
    assert {info.session: info.status for info in node.sessions()} == {"s": "FAILED", "sound": "FINISHED"}
    assert b"".join(node.data("sound", "past_two_0").chunks)
    with pytest.raises(ConflictError, match="already, FAILED"):
        node.submit(_graph("def f(x): return x"), SubmitQuery(session="s"))
    node.delete("s")
    assert not directory.exists()
    assert node.info().findings == ()


@pytest.mark.parametrize("name", ["deployment.json", "end.msgpack"])
def test_a_record_of_another_version_is_told_from_a_damaged_one(name: str, tmp_path: Path) -> None:
    """A file with the right checksum and other fields is of another version, and the hint says which one to start."""
    path = tmp_path / name
    write_checksummed(path, {"field of the future": 1})

    with pytest.raises(BadFileError, match="whole, but of another version") as caught:
        read_checksummed(path, {"deployment.json": Deployment, "end.msgpack": SessionEnd}[name])

    assert "version that wrote it" in caught.value.hint


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deployment.json", "end.msgpack"])
def test_any_damaged_byte_of_a_small_file_is_noticed(name: str, stack: ExitStack, tmp_path: Path) -> None:
    """With any byte of a record damaged, the node starts, and the session is as before."""
    first = _node(stack, tmp_path / "first")
    _run(first, "def f(x): return x")
    before_restart = first.session("s")
    first.close()
    path = tmp_path / "first" / "sessions" / "s" / name
    whole, kind = path.read_bytes(), {"deployment.json": Deployment, "end.msgpack": SessionEnd}[name]
    sound = read_checksummed(path, kind)
    # Each byte is changed in place: file systems write a file that is truncated and written again to the disk at once.
    with path.open("r+b", buffering=0) as file:
        for position in range(len(whole)):
            for damage in (0x01, 0x80, 0x00):
                file.seek(position)
                file.write(bytes([whole[position] ^ damage]))
                with suppress(BadFileError):
                    assert read_checksummed(path, kind) == sound
    for number, position in enumerate((0, len(whole) // 2, len(whole) - 1)):
        root = tmp_path / str(number)
        _copy(tmp_path / "first", root)
        (root / "sessions" / "s" / name).write_bytes(whole[:position] + b"\xff" + whole[position + 1 :])
        (session,) = recover_all(root / "sessions", "a").values()
        assert session.info().status == "FINISHED"  # the end, or else the journal, has the same state
        assert session.detail().states == before_restart.states
    assert len(recover_all(tmp_path / "first" / "sessions", "a")) == 1


def test_results_without_a_journal_are_not_removed(stack: ExitStack, tmp_path: Path) -> None:
    """A directory without a journal stays if something was committed in it."""
    first = _node(stack, tmp_path)
    _run(first, "def f(x): return x")
    first.close()
    for name in ("journal.dfj", "end.msgpack"):
        (tmp_path / "sessions" / "s" / name).unlink()

    assert _node(stack, tmp_path).session("s").status == "FAILED"
    assert len(list((tmp_path / "sessions" / "s" / "results").iterdir())) == 1


@pytest.mark.slow
def test_a_truncated_journal_is_read_up_to_its_end(stack: ExitStack, tmp_path: Path) -> None:
    """After kill -9 in the middle of a write, the session has all events that were written whole."""
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
    assert isinstance(_node(stack, root)._host.sessions["s"], FinishedSession)
