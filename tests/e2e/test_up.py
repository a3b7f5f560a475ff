"""`dropflow up`: a cluster on this host, and the commands that use it."""

import json
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dropflow import Graph
from dropflow.api.addresses import is_loopback
from dropflow.api.client import Client
from dropflow.api.contents_answer import DataQuery, PartOfContent
from dropflow.api.requests import SubmitQuery
from dropflow.errors import NotFoundError, RangeError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.preview.look import picture, preview
from dropflow.preview.source import BytesSource
from dropflow.states import SessionState
from tests.drawn_graphs import data, draw, function
from tests.e2e.cluster import until
from tests.nightly import nightly
from tests.processes import Running, environment, gone, listening, run, words, working_in
from tests.streaming_graphs import bash

pytestmark = pytest.mark.slow


ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.graph"))


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two nodes with an island, a master and a translator, for all tests of this module that do not stop them."""
    with Running(tmp_path_factory.mktemp("up"), "up", "--nodes", 2, "--port", 0) as running:
        yield running


@pytest.fixture(scope="module")
def client(up: Running) -> Iterator[Client]:
    """The master."""
    with Client(up.ready["master"], token=up.ready["token"]) as master:
        yield master


def contents(directory: Path) -> dict[str, bytes]:
    """Return the results of a run or a fetch."""
    files = (path for name in ("files", "results") for path in (directory / name).rglob("*"))
    return {str(path.relative_to(directory)): path.read_bytes() for path in files if path.is_file()}


def test_the_ready_line_names_everything(up: Running) -> None:
    """The ready line is one object with the addresses of all managers, and one token for all."""
    ready = up.ready
    urls = [ready["translator"], ready["master"], ready["island"], *ready["nodes"]]

    assert ready["ready"] is True
    assert (len(ready["nodes"]), len(set(urls))) == (2, 5)
    for url in urls:
        with Client(url, token=ready["token"]) as each:
            assert each.info().url == url


def test_one_address_for_the_browser_is_printed_before_the_ready_line(up: Running) -> None:
    """Standard error has the address of the master, with the token in the fragment, and of no other manager."""
    others = [up.ready["translator"], up.ready["island"], *up.ready["nodes"]]

    assert f"{up.ready['master']}/login#{up.ready['token']}" in up.errors
    assert [url for url in others if f"{url}/login" in up.errors] == []
    assert f"{up.ready['translator']}/gen_pgt" in up.errors


def test_open_prints_a_fresh_address_each_time(up: Running) -> None:
    """The address has a ticket for the page of a session, or for the first page, and never the token."""
    run(up.home, "submit", EXAMPLES[0], "--name", "to open")
    shown = [run(up.home, "open", *session).stdout.strip() for session in ((), (), ("to open",))]
    unknown = run(up.home, "open", "no-such-session")

    assert len(set(shown)) == 3
    assert all(url.startswith(f"{up.ready['master']}/login#ticket=") for url in shown)
    assert up.ready["token"] not in "".join(shown)
    assert shown[2].endswith("&next=%2Fsessions%2Fto%2520open")
    assert (unknown.returncode, "no-such-session" in unknown.stderr) == (2, True)


def test_everything_listens_on_loopback(up: Running) -> None:
    """No socket of any of the processes can be reached from other hosts."""
    sockets = listening(up.family())

    assert len(sockets) >= 7  # five servers, and the links of two nodes
    assert [address for address, _ in sockets if not is_loopback(address)] == []


def test_the_token_is_in_no_command_line_environment_or_log(up: Running) -> None:
    """Other users may see these; the token is passed in a file that only its owner can read."""
    token = up.ready["token"]
    processes = [" ".join(words(each)) for each in up.family()]
    logs = [path.read_text() for path in up.home.rglob("manager.log")]

    assert len(logs) == 5
    assert [text for text in [*processes, *logs] if token in text] == []


def test_the_doctor_finds_nothing(up: Running) -> None:
    """In a new cluster versions, keys, clocks and ports are right."""
    done = run(up.home, "doctor", "--output", "json")

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads(done.stdout)["managers"]) == 4


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(
            path, id=path.stem, marks=[] if path.stem in {"imaging", "live-receiver"} else pytest.mark.exhaustive
        )
        for path in EXAMPLES
    ],
)
def test_examples_have_the_results_of_one_machine(up: Running, graph: Path, tmp_path: Path) -> None:
    """With drops on two random nodes, fetched results are those of `dropflow run`, byte for byte."""
    alone = run(tmp_path, "run", graph, "--keep", "alone", "--output", "json")
    name = f"random-{graph.stem}"
    done = run(up.home, "submit", graph, "--wait", "--random", 7, "--name", name, "--output", "json")
    fetched = run(up.home, "fetch", name, "-o", tmp_path / "fetched", "--output", "json")
    answer, wanted = json.loads(done.stdout), json.loads(alone.stdout)

    assert done.returncode == alone.returncode, done.stdout + done.stderr
    assert (answer["status"], answer["states"]) == (wanted["status"], wanted["states"])
    assert fetched.returncode == 0, fetched.stdout + fetched.stderr
    assert contents(tmp_path / "fetched") == contents(tmp_path / "alone")
    assert contents(tmp_path / "fetched")


def test_a_result_that_is_gone_makes_a_fetch_fail(up: Running, tmp_path: Path) -> None:
    """Fetch names a missing result with the reason; once it is back, another fetch copies only that one."""
    run(up.home, "submit", EXAMPLES[0], "--wait", "--name", "holes")
    with Client(up.ready["island"], token=up.ready["token"]) as island:
        lost = island.results("holes").results[0]
    (kept,) = up.home.rglob(f"sessions/holes/{lost.path}*")
    hidden = kept.rename(kept.with_name("hidden"))
    first = run(up.home, "fetch", "holes", "-o", tmp_path / "here", "--output", "json")
    hidden.rename(kept)
    second = run(up.home, "fetch", "holes", "-o", tmp_path / "here", "--output", "json")
    missed, brought = json.loads(first.stdout), json.loads(second.stdout)

    assert (first.returncode, second.returncode) == (1, 0), first.stdout + second.stdout
    assert [(one["drop"], one["node"], one["code"]) for one in missed["missing"]] == [(lost.oid, lost.node, "DF121")]
    assert (brought["fetched"], brought["were_there"]) == (1, missed["fetched"])


def test_a_session_is_watched_to_its_end(up: Running) -> None:
    """Watching a session that is over ends immediately, with all its logical nodes."""
    run(up.home, "submit", EXAMPLES[0], "--name", "seen")
    done = run(up.home, "watch", "seen", "--output", "json")
    detail = json.loads(done.stdout)["session"]

    assert (done.returncode, detail["status"]) == (0, "FINISHED"), done.stdout + done.stderr
    assert sum(node["drops"] for node in detail["logical"]) == detail["drops"] == detail["settled"]


def waiting_graph(directory: Path) -> Path:
    """Return a graph with one application that runs longer than any test."""
    code = "def Wait():\n    import threading\n    threading.Event().wait(600)\n"
    return draw(directory / "waiting.graph", [function("Wait", code), data("never")], "Wait > never")


def test_a_session_is_cancelled_and_deleted_on_all_nodes(up: Running, client: Client, tmp_path: Path) -> None:
    """Cancelling stops running applications; deleting leaves no file on any node."""
    run(up.home, "submit", waiting_graph(tmp_path), "--name", "stop-me")
    cancelled = run(up.home, "cancel", "stop-me", "--reason", "enough")
    detail = list(client.events("stop-me"))[-1]
    deleted = run(up.home, "delete", "stop-me")

    assert (cancelled.returncode, deleted.returncode) == (0, 0)
    assert detail.status == "CANCELLED"
    assert list(up.home.rglob("sessions/stop-me*")) == []
    assert "stop-me" not in [info.session for info in client.sessions()]


def test_ctrl_c_while_waiting_does_not_stop_the_session(up: Running, client: Client, tmp_path: Path) -> None:
    """Ctrl-C on submit --wait ends with 130 and a hint, and the session continues."""
    process = subprocess.Popen(
        [*_dropflow(), "submit", waiting_graph(tmp_path), "--name", "go-on", "--wait"],
        env=environment(up.home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    progress = process.stderr.readline()  # it follows the session now; pytest's time limit is the deadline
    process.send_signal(signal.SIGINT)
    try:
        out, errors = process.communicate(timeout=120)
        status = client.session("go-on").status
    finally:
        process.kill()
        client.delete("go-on")  # or the tests after this one would wait for the worker that it keeps

    assert process.returncode == 130, progress + out + errors
    assert "dropflow watch go-on" in errors
    assert not SessionState[status].is_terminal


@pytest.mark.parametrize("number", [signal.SIGTERM, *nightly(signal.SIGINT)])
def test_nothing_is_left_behind(number: signal.Signals, tmp_path: Path) -> None:
    """After the end there is no process, no socket and no record; the status is 0. The token is kept for the owner."""
    with Running(tmp_path, "up", "--port", 0) as running:
        token, family = running.ready["token"], running.family()
        status = running.stop(number)
    (kept,) = tmp_path.rglob("token")

    assert status == 0, running.errors
    assert gone([*family, *working_in(tmp_path)])  # the sockets are closed with the processes
    assert (kept.read_text(), kept.stat().st_mode & 0o077) == (token, 0)
    assert list((tmp_path / "state" / "dropflow" / "tokens").glob("*/*")) == []


@pytest.mark.exhaustive
def test_sessions_are_cancelled_when_everything_is_stopped(tmp_path: Path) -> None:
    """The nodes end together, so none of them gives its sessions to the others before."""
    with Running(tmp_path, "up", "--nodes", 3, "--port", 0) as running:
        run(tmp_path, "submit", waiting_graph(tmp_path), "--name", "stop-me")
        status = running.stop()

    logs = "".join(path.read_text(encoding="utf-8") for path in tmp_path.rglob("node-*/manager.log"))
    assert status == 0, running.errors
    assert "the session is CANCELLED" in logs
    assert "goes on" not in logs


def test_children_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    """After kill -9 of up, its children detect the closed pipe and end cleanly, also in the middle of a session.

    With --no-auth, all managers answer without a token, and none is created.
    """
    with Running(tmp_path, "up", "--port", 0, "--no-auth") as running:
        assert running.ready["token"] is None
        for url in (running.ready["master"], running.ready["island"], *running.ready["nodes"]):
            with Client(url) as each:
                assert each.sessions() == ()
        run(tmp_path, "submit", waiting_graph(tmp_path), "--name", "failing")
        family = running.family()
        running.stop(signal.SIGKILL)

    assert gone(family)
    assert list(tmp_path.rglob("token")) == []
    assert list((tmp_path / "state" / "dropflow" / "tokens").glob("*/*")) == []


def test_a_child_that_dies_is_reported_and_the_others_continue(tmp_path: Path) -> None:
    """After kill -9 of a node, up reports it, and the master still answers."""
    with Running(tmp_path, "up", "--nodes", 2, "--port", 0) as running:
        (victim,) = [each for each in running.family() if {"node-2", "node"} <= set(words(each))]
        victim.kill()
        reported = until(lambda: "node-2 has ended with status -9" in running.errors)
        done = run(tmp_path, "sessions")

    assert reported, running.errors
    assert done.returncode == 0, done.stderr


def test_a_failed_start_leaves_nothing_behind(up: Running, tmp_path: Path) -> None:
    """With a port in use, up ends with status 2 and the reason, and starts nothing."""
    port = int(up.ready["island"].rpartition(":")[2])
    done = run(tmp_path, "up", "--port", port - 2, "--output", "json")
    error = json.loads(done.stdout)["error"]

    assert done.returncode == 2
    assert "cannot listen" in error["text"]
    assert error["where"] in ("translator", "master", "island")  # the ports before may be in use as well
    assert gone(working_in(tmp_path))


def test_a_second_cluster_in_the_same_directory_is_refused(up: Running) -> None:
    """A second one would damage the sessions of the first."""
    done = run(up.home, "up", "--port", 0)

    assert done.returncode == 2
    assert "another manager uses this directory" in done.stderr


def _dropflow() -> list[str]:
    return [sys.executable, "-m", "dropflow"]


def test_a_graph_written_in_python_runs_on_the_cluster(up: Running) -> None:
    """`Graph.submit` returns the session, and the values of its data that were kept."""
    with Graph("halves") as graph:
        with graph.each(graph.call(_numbers, 4), copies=4) as number:
            half = graph.call(_halve, number)
        total = graph.call(_total, half)

    with graph.submit(up.ready["master"], token=up.ready["token"], session="halves of python") as session:
        session.wait()

        assert session.status == "FINISHED"
        assert session.value(total) == 3.0
        assert "FINISHED" in session._repr_html_()
        with pytest.raises(NotFoundError, match=r"keep it with data\.set"):
            session.value(half)


def _numbers(count: int) -> list[int]:
    return list(range(count))


def _halve(x: float) -> float:
    return x / 2


def _total(values: list[float]) -> float:
    return sum(values)


# Results as one file, and the log of a session, from two node managers through an island and a master.


_CODE = """def printing():
    import ctypes, logging, os, sys
    import numpy as np
    print("from Python")
    print("to standard error", file=sys.stderr)
    logging.getLogger("x").warning("careful")
    os.system("echo from a program")
    ctypes.CDLL(None).puts(b"from C")
    ctypes.CDLL(None).fflush(None)
    return np.arange(12.0).reshape(3, 4)
"""
_PRINTED = ("from Python", "to standard error", "x: careful", "from a program", "from C")
_COPIES = 4


def _graph() -> PhysicalGraph:
    """Python functions that print in all ways, and their results, on two nodes by turns."""
    drawing = GraphBuilder("printing")
    fields = {"func_code": _CODE, "func_name": "printing", "output_parser": "npy"}
    arguments = tuple(Argument(name=name, value=value, type="String") for name, value in fields.items())
    for number in range(_COPIES):
        place = {"part": number % 2}
        drawing.app(f"p{number}", component="dlg.apps.pyfunc.PyFuncApp", arguments=arguments, **place)
        drawing.data(f"r{number}", **place).connect(f"p{number}", f"r{number}")
    return drawing.build()


def test_what_drops_print_and_make_comes_from_all_nodes(up: Running, tmp_path: Path) -> None:
    """Following the log ends with the session, and has each line once, of Python, of programs and of compiled code.

    The archive has the files of a fetch. Previews, pictures and parts through the managers are those of the contents.
    """
    with Client(up.ready["master"], token=up.ready["token"]) as master:
        master.submit(_graph(), SubmitQuery(session="printing", anew=True))
    followed = run(up.home, "log", "printing", "--follow", "--output", "json")
    lines = [json.loads(line) for line in followed.stdout.splitlines()]

    assert followed.returncode == 0, followed.stderr
    assert sorted((line["drop"], line["text"]) for line in lines) == sorted(
        (f"printing_p{number}_0", text) for number in range(_COPIES) for text in _PRINTED
    )
    assert len({line["node"] for line in lines}) == 2
    assert {line["level"] for line in lines if "careful" in line["text"]} == {"WARNING"}

    with (
        Client(up.ready["master"], token=up.ready["token"]) as master,
        Client(up.ready["island"], token=up.ready["token"]) as island,
    ):
        for manager in (master, island):
            for number in range(2):  # one on each node
                oid = f"printing_r{number}_0"
                whole = manager.data("printing", oid)
                data = b"".join(whole.chunks)
                content = BytesSource(data, oid)
                rest = manager.data("printing", oid, DataQuery(range="bytes=100-", if_range=whole.etag))
                assert b"".join(rest.chunks) == data[100:]
                assert rest.part == PartOfContent(100, len(data) - 1, len(data))
                with pytest.raises(RangeError, match=f"the content has {len(data)} bytes"):
                    manager.data("printing", oid, DataQuery(range="bytes=9999-"))
                assert manager.preview("printing", oid) == preview(content)
                assert preview(content).width == 4
                assert b"".join(manager.picture("printing", oid).chunks) == picture(content)

    packed = run(up.home, "fetch", "printing", "-o", tmp_path / "all.tar")
    fetched = run(up.home, "fetch", "printing", "-o", tmp_path / "all")
    assert (packed.returncode, fetched.returncode) == (0, 0), packed.stderr + fetched.stderr
    with tarfile.open(tmp_path / "all.tar") as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")

    def files(place: Path) -> dict[str, bytes]:
        return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}

    assert files(tmp_path / "unpacked") == files(tmp_path / "all")
    assert len(files(tmp_path / "all")) == _COPIES


def test_a_drop_of_a_session_is_replayed_with_inputs_from_its_node(up: Running, tmp_path: Path) -> None:
    """A file is fetched, contents that were released are made again here, and the failure is that of the session."""
    code = "def check(values):\n    raise ValueError(f'{len(values)} bytes')\n"
    fields = {"func_code": code, "func_name": "check", "input_parser": "raw"}
    for kind in ("file.FileDROP", "memory.InMemoryDROP"):
        drawing = GraphBuilder("checks")
        drawing.app("MAKE", **bash("StreamingOutputBashApp", "echo seven!!"))  # type: ignore[arg-type]
        drawing.data("values", component=f"dlg.data.drops.{kind}", part=0)
        arguments = tuple(Argument(name=name, value=value, type="String") for name, value in fields.items())
        drawing.app("CHECK", component="dlg.apps.pyfunc.PyFuncApp", part=1, arguments=arguments)
        drawing.data("end", part=1)
        drawing.connect("MAKE", "values").connect("values", "CHECK").connect("CHECK", "end")
        name = kind.partition(".")[0]
        with Client(up.ready["master"], token=up.ready["token"]) as master:
            master.submit(drawing.build(), SubmitQuery(session=name, anew=True))
        run(up.home, "watch", name)
        answer = run(up.home, "replay", name, "CHECK", "-o", tmp_path / name)

        assert answer.returncode == 1, answer.stderr
        assert "ValueError: 8 bytes" in answer.stdout
        assert ("1 application ran before it" in answer.stdout) == (name == "memory")
        assert (tmp_path / name / "inputs").exists() == (name == "file")
