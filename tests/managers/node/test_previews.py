"""Previews and pictures of contents on a node."""

import base64
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Self

import msgspec
import numpy as np
import pytest

from dropflow.errors import BadFileError, GoneError, PreviewError, UsageError, WorldError
from dropflow.execution.content_location import Handle
from dropflow.graph.slices import slice_for, with_placement
from dropflow.preview.look import picture, preview
from dropflow.preview.source import FIRST_LOOK, BytesSource, DirectorySource, Preview, PreviewAnswer
from dropflow.testing.drawing import draw
from managers.node.previews import ContentPreviews, PreviewLimits
from managers.node.session_records import results
from tests.preview.made_files import fits, npy, png, tiled, zarr
from tests.processes import few_files

pytestmark = pytest.mark.slow

_IMAGE = np.arange(12.0).reshape(3, 4)
_TEXT = Handle(body=b"text")


@pytest.fixture(scope="module")
def previews() -> Iterator[ContentPreviews]:
    """Processes with the limits of a node."""
    previews_ = ContentPreviews()
    yield previews_
    previews_.close()


def test_a_process_shows_contents_as_this_one_would(previews: ContentPreviews, tmp_path: Path) -> None:
    """Memory, files and directories of each format have the preview and the picture that their reader makes."""
    zarr(tmp_path / "z", _IMAGE, (2, 2))
    folder = Handle(kind="directory", location=str(tmp_path / "z"))
    contents = [
        *(
            npy(_IMAGE),
            fits(_IMAGE),
            tiled(np.arange(90, dtype=np.int16).reshape(9, 10), "RICE_1", (1, 10)),
            png(np.eye(9, dtype=np.uint8)),
        ),
        *(b"a,b\n1,2\n3,4\n", b'[{"a": 1}]', b"#!/bin/sh\n", b"\0\1", b"", npy(_IMAGE)[:90], b"\x1f\x8b\1"),
    ]

    assert previews.preview("s", folder, FIRST_LOOK) == preview(DirectorySource(tmp_path / "z"))
    assert b"".join(previews.picture("s", folder, "x", FIRST_LOOK).chunks) == picture(DirectorySource(tmp_path / "z"))
    for number, content in enumerate(contents):
        path = tmp_path / str(number)
        path.write_bytes(content)
        file = Handle(kind="file", location=str(path), size=len(content))
        assert previews.preview("s", Handle(body=content), FIRST_LOOK) == preview(BytesSource(content))
        assert previews.preview("s", file, FIRST_LOOK) == preview(BytesSource(content, path.name))
        if number < 4:
            shown = previews.picture("s", file, "x", FIRST_LOOK)
            assert (shown.name, shown.content_type) == ("x.png", "image/png")
            assert b"".join(shown.chunks) == picture(BytesSource(content))
    with pytest.raises(BadFileError, match="not a picture"):
        previews.picture("s", _TEXT, "x", FIRST_LOOK)
    assert len(_processes(previews)) == 1, "a process stays for the next request"


def test_a_content_that_its_reader_fails_at_is_bad(
    previews: ContentPreviews, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a library raises about a content is no internal error, and the traceback stays in the log."""
    answer = PreviewAnswer(bug="Traceback (most recent call last):\n  File x\nKeyError: 7\n")
    monkeypatch.setattr("managers.node.previews._Process.ask", lambda *_: answer)
    with pytest.raises(BadFileError, match=r"cannot be shown: KeyError: 7 \(download it\)"):
        previews.preview("s", _TEXT, FIRST_LOOK)

    assert "Traceback" in caplog.text


def test_without_descriptors_there_are_no_previews() -> None:
    """The reason is told, and the next request is answered."""
    fresh = ContentPreviews()
    with few_files(0), pytest.raises(WorldError, match="for previews can be started: Too many open files"):
        fresh.preview("s", _TEXT, FIRST_LOOK)
    answered = fresh.preview("s", _TEXT, FIRST_LOOK)
    fresh.close()

    assert answered == preview(BytesSource(_TEXT.body))


def test_an_array_with_empty_chunks_is_bad(previews: ContentPreviews, tmp_path: Path) -> None:
    """It is shown as the directory that it is, and the reason is said."""
    zarr(tmp_path, _IMAGE, (2, 2), version=3, codec="")
    metadata = tmp_path / "zarr.json"
    metadata.write_text(metadata.read_text().replace("[2, 2]", "[0, 2]"))
    shown = previews.preview("s", Handle(kind="directory", location=str(tmp_path)), FIRST_LOOK)

    assert shown.format == "Directory"
    assert shown.trouble == "the zarr array has chunks of length 0"


def test_contents_that_are_not_here_are_refused(previews: ContentPreviews, tmp_path: Path) -> None:
    """A content elsewhere, one that is missing, one of another size, and one that is a FIFO have errors."""
    changed, fifo = tmp_path / "a", tmp_path / "b"
    changed.write_bytes(b"1234")
    os.mkfifo(fifo)

    with pytest.raises(GoneError, match="is at http://x"):
        previews.preview("s", Handle(kind="url", location="http://x"), FIRST_LOOK)
    with pytest.raises(GoneError, match="not there any more"):
        previews.preview("s", Handle(kind="file", location=str(tmp_path / "none")), FIRST_LOOK)
    with pytest.raises(GoneError, match="has 4 bytes where 5 were committed"):
        previews.preview("s", Handle(kind="file", location=str(changed), size=5, checksum=1), FIRST_LOOK)
    with pytest.raises(UsageError, match="FIFO"):
        previews.preview("s", Handle(kind="file", location=str(fifo)), FIRST_LOOK)


def test_the_process_has_no_secrets_and_few_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a fresh program without the environment and the files of the manager, and leaves no memory on the disk."""
    monkeypatch.setenv("DROPFLOW_TOKEN", "secret")
    with (tmp_path / "key").open("wb") as key:
        os.set_inheritable(key.fileno(), True)
        fresh = ContentPreviews()
        fresh.preview("s", _TEXT, FIRST_LOOK)
        [pid] = _processes(fresh)
        proc = Path(f"/proc/{pid}")
        files = {str(path.readlink()).partition(":")[0] for path in (proc / "fd").iterdir()}
        environment, limits = (proc / "environ").read_bytes(), (proc / "limits").read_text()
        fresh.close()

    assert b"secret" not in environment
    assert files == {"pipe", "socket", "/dev/null"}
    assert [line.split()[4] for line in limits.splitlines() if "core file" in line or "file size" in line] == ["0", "0"]
    assert not proc.exists()
    with pytest.raises(WorldError, match="being closed"):
        fresh.preview("s", _TEXT, FIRST_LOOK)


def test_a_process_that_prints_much_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings of decoders are lost when the pipe for them is full; they do not stop the process."""
    program = """import os, msgspec
encode = msgspec.msgpack.encode
def loud(answer):
    try:
        os.write(2, bytes(100_000))
    except BlockingIOError:
        pass
    return encode(answer)
msgspec.msgpack.encode = loud
"""
    (tmp_path / "sitecustomize.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with closing(ContentPreviews(PreviewLimits(seconds=5.0))) as loud:
        assert [loud.preview("s", _TEXT, FIRST_LOOK).text for _ in range(2)] == ["text"] * 2


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGSEGV, "SIGSEGV"), (signal.SIGKILL, "SIGKILL"), (signal.SIGRTMIN + 6, "signal 40")]
)
def test_a_process_that_dies_costs_one_preview(previews: ContentPreviews, number: int, name: str) -> None:
    """The preview that it was at fails with how it ended, and the next one has another process."""
    with _Held(previews, "mine") as held:
        os.kill(held.pid, number)
        os.kill(held.pid, signal.SIGCONT)
        with pytest.raises(PreviewError, match=f"for a preview was ended by {name}"):
            held.answer.result()

    assert previews.preview("mine", _TEXT, FIRST_LOOK).text == "text"


def test_a_process_that_ends_while_it_is_idle_costs_nothing(previews: ContentPreviews) -> None:
    """It is replaced before a request is sent to it."""
    previews.preview("s", _TEXT, FIRST_LOOK)
    for pid in _processes(previews):
        watch = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        select.select([watch], [], [])
        os.close(watch)

    assert previews.preview("s", _TEXT, FIRST_LOOK).text == "text"


def test_others_have_previews_while_one_session_waits_for_its_own() -> None:
    """A session has one process, and its further requests are refused when they have waited long enough."""
    previews = ContentPreviews(PreviewLimits(patience=0.2))
    with _Held(previews, "slow"), ThreadPoolExecutor(10) as threads:
        more = [threads.submit(previews.preview, "slow", _TEXT, FIRST_LOOK) for _ in range(10)]
        assert previews.preview("other", _TEXT, FIRST_LOOK).text == "text"
        for thread in more:
            with pytest.raises(WorldError, match="too many previews"):
                thread.result()
    previews.close()


def test_a_content_that_takes_too_much_has_no_preview(tmp_path: Path) -> None:
    """There are limits of time on the clock, of time of the processor, and of memory."""
    previews, few = ContentPreviews(), ContentPreviews(PreviewLimits(processor=0))
    small = ContentPreviews(PreviewLimits(memory=500 << 20))
    slow = tiled(np.zeros((2550, 2550), np.int16), "GZIP_1", (10, 10))
    zarr(tmp_path, np.ones((8000, 8000), np.uint8), (8000, 8000))

    with (
        _Held(previews, "s", PreviewLimits(seconds=0.3)) as held,
        pytest.raises(PreviewError, match=r"took more than 0\.3 s \(download it\)"),
    ):
        held.answer.result()
    with pytest.raises(PreviewError, match="took more than 0 s of processor time"):
        # One takes half a second on a fast machine, and the kernel ends the process at its next whole second.
        tuple(few.preview("s", Handle(body=slow), FIRST_LOOK) for _ in range(10))
    with pytest.raises(BadFileError, match="needs more than 500 MB of memory"):
        small.preview("s", Handle(kind="directory", location=str(tmp_path)), FIRST_LOOK)
    for previewer in (previews, few, small):
        previewer.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"\xff\xff\xff\xff", "answered with 4,294,967,295 bytes"),
        (b"\0\0\0\2ab", "gave an answer that cannot be read"),
        (msgspec.msgpack.encode(PreviewAnswer()), "without the preview"),
        (msgspec.msgpack.encode(PreviewAnswer(picture=b"GIF")), "without the preview"),
        (b"", "ended with status 0"),
    ],
)
def test_an_answer_that_is_none_is_an_error(
    answer: bytes, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a process sends whose memory a content has overwritten is believed only if it has the form of an answer."""
    if answer[:1] not in (b"", b"\0", b"\xff"):
        answer = len(answer).to_bytes(4, "big") + answer
    program = tmp_path / "python"
    sent = f"os.write(int(sys.argv[-3]), base64.b64decode({base64.b64encode(answer)!r}))"
    # A process that answers stays to the end: a request that comes in two parts would meet a closed socket.
    wait = "while" if answer else "if"
    program.write_text(
        f"#!{sys.executable} -S\nimport os, sys, base64\n{sent}\n{wait} os.read(int(sys.argv[-3]), 999):\n    pass\n"
    )
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    previews = ContentPreviews()

    with pytest.raises(PreviewError, match=words):
        previews.preview("s", _TEXT, FIRST_LOOK)
    with pytest.raises(PreviewError, match=words):
        previews.picture("s", _TEXT, "x", FIRST_LOOK)
    assert _processes(previews) == []


def test_the_process_ends_with_its_manager() -> None:
    """Also when the manager is killed: then nothing can tell it to."""
    program = (
        "import sys; from dropflow.execution.content_location import Handle\n"
        "from dropflow.preview.source import FIRST_LOOK\n"
        "from managers.node.previews import ContentPreviews\n"
        "previews = ContentPreviews(); previews.preview('s', Handle(body=b'x'), FIRST_LOOK)\n"
        "print(previews._idle[0]._popen.pid, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as manager:
        assert manager.stdout is not None
        watch = os.pidfd_open(int(manager.stdout.readline()))
        manager.kill()
        assert select.select([watch], [], [], 60)[0] == [watch]
        os.close(watch)


class _Held:
    """A request whose process is stopped before it can answer."""

    def __init__(self, previews: ContentPreviews, session: str, limits: PreviewLimits | None = None) -> None:
        self._threads = ThreadPoolExecutor(1)
        previews.preview(session, _TEXT, FIRST_LOOK)
        process = previews._idle[-1]
        process._limits = limits or process._limits
        self.pid = process._popen.pid
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)
        has_begun, ask = threading.Event(), process.ask

        def asked(*given: object) -> PreviewAnswer:
            has_begun.set()
            return ask(*given)  # type: ignore[arg-type]

        process.ask = asked  # type: ignore[method-assign]
        self.answer: Future[Preview] = self._threads.submit(previews.preview, session, _TEXT, FIRST_LOOK)
        has_begun.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.answer.done():
            os.kill(self.pid, signal.SIGKILL)
        self._threads.shutdown()


def _processes(previews: ContentPreviews) -> list[int]:
    return [process._popen.pid for process in previews._idle]


def test_results_in_stores_are_apart() -> None:
    """They are no files of the session, and have safe names of their own."""
    graph = with_placement(draw("A -> x, A -> y"), np.zeros(3, dtype=np.int32), ("n1",))
    piece, rows = slice_for(graph, "n1"), {graph.templates[at].name: drop for drop, at in enumerate(graph.template)}
    contents = {
        rows["x"]: Handle(kind="url", location='s3://bucket/dir/x y.fits#{"anon":true}', size=3),
        rows["y"]: Handle(kind="bytes", body=b"abc", size=3),
    }
    listing = results(piece, contents, Path("/nowhere"))

    assert [result.name for result in listing.results] == ["y"]
    assert [(store.name, store.path) for store in listing.in_stores] == [("x", "results/x_y.fits")]


def test_an_empty_leaf_in_memory_is_no_result(tmp_path: Path) -> None:
    """A run on one machine makes no file of it either; an empty file is a result."""
    graph = with_placement(draw("A -> x, A -> y, A -> z"), np.zeros(4, dtype=np.int32), ("n1",))
    piece, rows = slice_for(graph, "n1"), {graph.templates[at].name: drop for drop, at in enumerate(graph.template)}
    contents = {
        rows["x"]: Handle(),
        rows["y"]: Handle(kind="file", location=str(tmp_path / "files" / "y")),
        rows["z"]: Handle(body=b"abc", size=3),
    }

    assert [result.path for result in results(piece, contents, tmp_path).results] == ["files/y", "results/drawing_z_0"]
