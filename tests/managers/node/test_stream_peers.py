"""Invalid stream events of a peer fail the session that it shares, with an error that names it, and nothing else."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dropflow.engine.api import Handle
from dropflow.errors import GoneError
from managers.links import WantedContent
from managers.messages import Events, StreamUpdate
from tests.managers.node.conftest import Cluster, until
from tests.streaming_graphs import content, line, settled

pytestmark = pytest.mark.slow

Make = Callable[..., Cluster]

MAKE, DATA, TAKE, RESULT = range(4)
"""Rows of a `line`; the first two on a, the others on b."""

INVALID_UPDATES = {
    "of a drop that there is not": ("a", "b", StreamUpdate(99, 1, -1, Handle(kind="stream"))),
    "of a drop that is not in the slice": ("b", "a", StreamUpdate(RESULT, 1, -1, Handle(kind="stream"))),
    "of a drop of the receiver": ("b", "a", StreamUpdate(DATA, 1, -1, Handle(kind="stream"))),
    "of a producer of the receiver": ("b", "a", StreamUpdate(DATA, 1, MAKE, Handle(kind="stream"))),
    "of a consumer as a producer": ("b", "a", StreamUpdate(DATA, 1, TAKE, Handle(kind="stream"))),
    "of a producer that there is not": ("a", "b", StreamUpdate(DATA, 1, 99, Handle(kind="stream"))),
    "that it is withdrawn by who does not write it": ("b", "a", StreamUpdate(DATA, 1, -1)),
    "that leaves the directory": (
        "a",
        "b",
        StreamUpdate(DATA, 7, -1, Handle(kind="stream", final="./../../../stolen")),
    ),
    "with a path that is none": ("a", "b", StreamUpdate(DATA, 7, -1, Handle(kind="stream", final="./x\0y"))),
}


def _begun(make_cluster: Make, folder: Path) -> tuple[Cluster, int]:
    """Start a line whose producer waits for a file in mid-stream, and whose consumer has read all that was written."""
    cluster = make_cluster(2)
    make = f"echo one; until test -e {folder}/go; do sleep 0.02; done; echo two"
    epoch = cluster.start(line(make, f"read word; touch {folder}/read; echo $word; cat", (0, 0, 1))).epoch
    assert settled(lambda: int((folder / "read").exists()), threading.Event().wait, least=1)
    return cluster, epoch


def _send(cluster: Cluster, epoch: int, sender: str, peer: str, *updates: StreamUpdate) -> None:
    events = Events.of("s", epoch, 9, drops=[], states=[], attempts=[], causes=[], streams=updates)
    cluster[sender]._links.send(peer, events)
    assert cluster[sender]._links.flush(10.0)


@pytest.mark.parametrize("what", INVALID_UPDATES)
def test_an_invalid_stream_event_of_a_peer_fails_the_session(what: str, make_cluster: Make, tmp_path: Path) -> None:
    """The error of the receiving node names the sender; nothing is written outside of the session's directory."""
    sender, peer, stream = INVALID_UPDATES[what]
    cluster, epoch = _begun(make_cluster, tmp_path)
    _send(cluster, epoch, sender, peer, stream)
    detail = until(cluster[peer], "s", lambda detail: bool(detail.finished))

    assert detail.status == "FAILED"
    assert [failure.name for failure in detail.failures if not failure.drop] == [sender]
    assert not list(tmp_path.glob("**/stolen*"))


@pytest.mark.parametrize("attempt", [1, 5])
def test_a_repeated_stream_event_changes_no_result(attempt: int, make_cluster: Make, tmp_path: Path) -> None:
    """A stream of the same attempt is not copied again; if it is not offered, readers get the whole content later."""
    cluster, epoch = _begun(make_cluster, tmp_path)
    _send(cluster, epoch, "a", "b", StreamUpdate(DATA, attempt, -1, Handle(kind="stream", final="./files/data")))
    if attempt > 1:
        _send(cluster, epoch, "a", "b", StreamUpdate(DATA, 3, -1), StreamUpdate(DATA, 2, -1, Handle(kind="stream")))
    (tmp_path / "go").touch()
    ended = cluster.end()

    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert (cluster["b"].drop("s", "line_TAKE_0").attempt == 1) == (attempt == 1)
    assert content(cluster["b"].data("s", "line_result_0")) == b"one\ntwo\n"


@pytest.mark.parametrize(
    ("drop", "attempt", "producer"), [(DATA, 2, -1), (DATA, 1, MAKE), (RESULT, 1, -1), (99, 1, -1)]
)
def test_a_stream_that_is_not_offered_cannot_be_fetched(
    drop: int, attempt: int, producer: int, make_cluster: Make, tmp_path: Path
) -> None:
    """A request for the stream of another drop, attempt or producer fails: it is gone."""
    cluster, _ = _begun(make_cluster, tmp_path)
    wanted = WantedContent(session="s", drop=drop, attempt=attempt, producer=producer)
    with pytest.raises(GoneError, match=f"drop {drop} of session s"):
        cluster["b"]._links.fetch("a", wanted, lambda *_: None, timeout=10.0)
    (tmp_path / "go").touch()

    assert {detail.status for detail in cluster.end().values()} == {"FINISHED"}
