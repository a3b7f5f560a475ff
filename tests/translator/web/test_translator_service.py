"""Translations: their results and their limits."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from dropflow.api.node_records import Load, NodeInfo
from dropflow.errors import ConflictError, HttpError, NotFoundError, UsageError
from tests.fake_manager import FakeManager
from translator.web.jobs import TranslationQueue
from translator.web.records import DeployRequest, RepartitionRequest, TranslateQuery, TranslationInfo, TranslatorLimits
from translator.web.translator_service import TranslatorService

pytestmark = pytest.mark.slow

_MEGABYTE = 1024 * 1024


@pytest.fixture
def start(tmp_path: Path) -> Any:
    """A function that starts services in one directory. They are closed after the test."""
    services: list[TranslatorService] = []

    def make(manager: FakeManager | None = None, **limits: Any) -> TranslatorService:
        connect = lambda _: manager or FakeManager("m", role="master", nodes=("a", "b", "c"))  # noqa: E731 - short
        services.append(
            TranslatorService(
                tmp_path / "root", managers=["http://host:1"], connect=connect, limits=TranslatorLimits(**limits)
            )
        )
        return services[-1]

    yield make
    for service in services:
        service.close()


Start = Callable[..., TranslatorService]


def _done(service: TranslatorService, source: bytes | Path, **query: Any) -> TranslationInfo:
    data = source.read_bytes() if isinstance(source, Path) else source
    info = service.get(service.submit(data, TranslateQuery(**query)).id, seconds=60)
    assert info.is_over
    return info


def test_a_graph_is_counted_by_logical_node_and_link(start: Start, nested: Path) -> None:
    """The sums of drops and edges are those of the graph."""
    report = _done(start(), nested, name="nested.graph", parts=3).report

    assert report is not None
    assert report.drops == sum(node.drops for node in report.nodes) == report.data_drops + report.app_drops
    assert report.connections == sum(link.edges for link in report.links)
    assert report.measures is not None
    assert sum(report.measures.part_drops) == report.drops


def test_settings_change_the_graph(start: Start, nested: Path) -> None:
    """Values of parameters are set before the graph is unrolled."""
    info = _done(start(), nested, settings="Rows.num_of_copies=7\n\nCells.num_of_copies=5\n")

    assert info.report is not None
    assert {node.shape for node in info.report.nodes} >= {(7,), (7, 5)}


def test_all_problems_are_reported_together(start: Start, hello: Path) -> None:
    """The report has the problems of the graph and of the options."""
    document = json.loads(hello.read_text())
    document["nodeDataArray"][0]["category"] = "Nonsense"
    report = _done(start(), json.dumps(document).encode(), algorithm="made-up").report

    assert report is not None
    assert report.state == "refused"
    assert {"LG030", "PT002"} <= {problem.code for problem in report.problems}


def test_files_of_the_server_are_not_named(start: Start, tmp_path: Path) -> None:
    """The error of an unreadable graph does not contain its path on the server."""
    info = _done(start(), b"\x89DFG\r\n\x1a\n garbage", name="mine.dfg")

    assert info.state == "refused"
    assert str(tmp_path) not in repr(info)


def test_a_graph_that_would_be_too_large_is_refused_before_it_is_unrolled(start: Start, nested: Path) -> None:
    """The number of drops is computed before the graph is unrolled, and reported."""
    info = _done(start(), nested, settings="Rows.num_of_copies=30000\nCells.num_of_copies=30000")

    assert info.report is not None
    assert {p.code for p in info.report.problems if p.severity == "error"} == {"LG120"}
    assert info.report.drops > 10**9
    assert "unrolling" not in info.report.seconds


@pytest.mark.usefixtures("started_processes")
def test_a_translation_that_needs_too_much_memory_fails(start: Start, nested: Path) -> None:
    """The error names the limit, and the next translation works."""
    service = start(memory=700 * _MEGABYTE, drops=10**8, edges=10**9)
    info = _done(service, nested, settings="Rows.num_of_copies=4000\nCells.num_of_copies=4000")

    assert info.state == "failed"
    assert info.report is not None
    assert info.report.error is not None
    assert "memory" in info.report.error.text or "process" in info.report.error.text
    assert _done(service, nested).state == "done"


@pytest.mark.usefixtures("started_processes")
def test_a_translation_that_takes_too_long_is_killed(start: Start, nested: Path) -> None:
    """The error names the limit, and the process is gone."""
    info = _done(start(seconds=0.01), nested)

    assert info.report is not None
    assert info.report.error is not None
    assert "longer than the 0.01 seconds" in info.report.error.text
    assert [
        child for child in psutil.Process().children() if "translator.web.translation_process" in child.cmdline()
    ] == []


def test_a_translation_that_ends_as_its_time_is_over_has_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is over after its process has ended, and before that is noticed."""
    monkeypatch.setattr(threading.Timer, "start", lambda timer: timer.function(*timer.args))
    queue = TranslationQueue(workers=0, waiting=1, seconds=9, on_stage=lambda *_: None, on_end=lambda *_: None)
    process = subprocess.Popen(["true"], stdout=subprocess.PIPE)
    process.wait()

    assert queue._follow("one", process, tmp_path) is None


def _worker() -> psutil.Process:
    """Wait for a worker process and return it."""
    while True:
        for child in psutil.Process().children():
            if "translator.web.translation_process" in child.cmdline():
                return child


@pytest.mark.usefixtures("started_processes")
def test_a_worker_that_is_killed_fails_only_its_translation(start: Start, nested: Path) -> None:
    """The error names the signal, and the next translation works."""
    service = start(workers=1)
    info = service.submit(nested.read_bytes(), TranslateQuery(settings="Rows.num_of_copies=2000"))
    os.kill(_worker().pid, signal.SIGKILL)
    over = service.get(info.id, seconds=60)

    assert over.report is not None
    assert over.report.error is not None
    assert "signal 9" in over.report.error.text
    assert _done(service, nested).state == "done"


def test_work_beyond_the_queue_is_refused(start: Start, nested: Path) -> None:
    """A translation beyond the queue gets 503; those in the queue are done."""
    service = start(workers=1, waiting=2)
    data, taken = nested.read_bytes(), []

    def flood() -> None:
        while True:
            taken.append(service.submit(data, TranslateQuery()).id)

    with pytest.raises(HttpError, match="waiting already") as refused:
        flood()

    assert refused.value.status == 503
    assert {service.get(id_, seconds=60).state for id_ in taken} == {"done"}


def test_the_oldest_translations_are_deleted(start: Start, hello: Path) -> None:
    """The list and the disk have no more translations than the limit."""
    service = start(kept=3)
    ids = [_done(service, hello).id for _ in range(5)]

    assert [info.id for info in service.all()] == ids[:1:-1]
    with pytest.raises(NotFoundError, match="old ones are deleted"):
        service.get(ids[0])


@pytest.mark.exhaustive
def test_the_bytes_on_disk_are_limited(start: Start, hello: Path, tmp_path: Path) -> None:
    """The oldest translations are deleted to keep the limit."""
    limit = 12 * hello.stat().st_size
    service = start(kept_bytes=limit)
    for _ in range(8):
        _done(service, hello)
    size = sum(path.stat().st_size for path in (tmp_path / "root" / "translations").rglob("*") if path.is_file())

    assert size <= limit


def test_translations_outlive_the_service(start: Start, hello: Path) -> None:
    """A restarted service has the reports and graphs of the service before."""
    first = start()
    info = _done(first, hello, name="hello.graph")
    first.close()
    second = start()

    assert second.get(info.id).report == info.report
    assert second.graph(info.id).is_file()


@pytest.mark.parametrize("name", ["order.json", "report.json"])
def test_a_damaged_translation_is_reported_as_failed(name: str, start: Start, hello: Path, tmp_path: Path) -> None:
    """The service starts, and the other translations are served."""
    first = start()
    damaged, sound = _done(first, hello, name="one"), _done(first, hello, name="two")
    first.close()
    path = tmp_path / "root" / "translations" / damaged.id / name
    body = path.read_bytes()
    path.write_bytes(body.replace(b'"', b'"\xff', 1))
    second = start()
    report = second.get(damaged.id).report

    assert report is not None
    assert report.error is not None
    assert (report.state, "cannot be read" in report.error.text) == ("failed", True)
    assert second.get(sound.id).report == sound.report


def test_a_directory_has_one_translator(start: Start) -> None:
    """A second translator in the same directory is refused."""
    start()

    with pytest.raises(ConflictError, match="another translator"):
        start()


@pytest.mark.usefixtures("started_processes")
def test_a_deleted_translation_is_gone(start: Start, nested: Path, tmp_path: Path) -> None:
    """The process of a running translation is killed, and its directory removed."""
    service = start(workers=1)
    info = service.submit(nested.read_bytes(), TranslateQuery(settings="Rows.num_of_copies=2000"))
    worker = _worker()
    service.delete(info.id)
    worker.wait(60)
    _done(service, nested)

    with pytest.raises(NotFoundError, match=info.id):
        service.get(info.id)
    assert not (tmp_path / "root" / "translations" / info.id).exists()


def test_a_deletion_ends_the_wait_for_a_translation(start: Start, nested: Path) -> None:
    """A call that waits for a deleted translation raises NotFoundError."""
    service = start(workers=1)
    info = service.submit(nested.read_bytes(), TranslateQuery(settings="Rows.num_of_copies=2000"))
    seen: list[type[BaseException]] = []

    def wait() -> None:
        try:
            service.get(info.id, seconds=60)
        except NotFoundError as error:
            seen.append(type(error))

    thread = threading.Thread(target=wait)
    thread.start()
    service.delete(info.id)
    thread.join(60)

    assert seen in ([NotFoundError], [])
    assert not thread.is_alive()


def test_the_same_graph_in_another_partition(start: Start, nested: Path) -> None:
    """Partitioning again makes another translation of the same source."""
    service = start()
    first = _done(service, nested)
    second = service.get(
        service.again(first.id, partition=RepartitionRequest(algorithm="blocks", parts=4)).id, seconds=60
    )

    assert second.id != first.id
    assert second.report is not None
    assert second.report.measures is not None
    assert (second.report.measures.algorithm, second.report.measures.parts) == ("blocks", 4)
    assert service.get(first.id) == first


def test_the_oldest_can_be_partitioned_again_at_the_limit(start: Start, hello: Path) -> None:
    """Its source is read before it is deleted."""
    service = start(kept=1)
    first = _done(service, hello)
    second = service.get(service.again(first.id, partition=RepartitionRequest(parts=2)).id, seconds=60)

    assert second.state == "done"
    assert [info.id for info in service.all()] == [second.id]


def test_deploying_spreads_over_the_nodes_that_are_alive(start: Start, nested: Path) -> None:
    """The graph is partitioned again, with one part for each node; the answer has the URL of the session."""
    manager = FakeManager("m", role="master", nodes=("a", "b", "c"))
    service = start(manager)
    info = _done(service, nested, name="nested.graph")
    done = service.deploy(info.id, DeployRequest(manager="http://host:1/", session="one", spread=True))

    assert done.url == "http://host:1/sessions/one"
    assert manager.graph("one").parts == 3


def test_deploying_plans_for_the_load_of_the_nodes(start: Start, nested: Path) -> None:
    """A node whose processors are busy gets fewer drops."""
    manager = FakeManager("m", role="master", nodes=("a", "b"))
    for name, use in (("a", 0.0), ("b", 100.0)):
        manager.set_node(NodeInfo(name=name, load=Load(cores=1, workers=1, processor=use)))
    service = start(manager)
    info = _done(service, nested, parts=2)
    service.deploy(info.id, DeployRequest(manager="http://host:1/", session="one", spread=True))
    idle, busy = np.bincount(manager.graph("one").part, minlength=2).tolist()

    assert idle > busy > 0


def test_only_known_managers_are_called(start: Start, hello: Path) -> None:
    """A request cannot make the server call another address."""
    service = start()
    info = _done(service, hello)

    for manager in ("http://host:2", "http://host:1@evil", "http://host:1/..", "file:///etc/passwd", ""):
        with pytest.raises(UsageError, match="does not deploy to"):
            service.deploy(info.id, DeployRequest(manager=manager))


@pytest.mark.parametrize("address", ["host:1", "ftp://host:1", "http://", "http://a:99999", "http://a b", "http://a;x"])
def test_urls_of_managers_are_checked_at_the_start(address: str, tmp_path: Path) -> None:
    """The service refuses to start with a wrong one."""
    with pytest.raises(UsageError, match="is not a manager URL"):
        TranslatorService(tmp_path, managers=[address], connect=lambda _: FakeManager())


@pytest.mark.parametrize("source", [b"", b"   ", b"\n"])
def test_an_empty_graph_is_refused(start: Start, source: bytes) -> None:
    """No translation is created for it."""
    service = start()

    with pytest.raises(UsageError, match="empty"):
        service.submit(source, TranslateQuery())
    assert service.all() == ()
