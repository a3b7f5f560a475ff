"""What attempts write to streams, and what they leave when they fail."""

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dropflow.apps.app_interface import App, Context
from dropflow.apps.builtin.copy import CopyApp
from dropflow.apps.registry import streaming_links
from dropflow.data.streams import StreamPublisher, StreamReader
from dropflow.execution.content_location import Handle
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.tasks import AttemptResult, Input, Output, StreamOpened, Task
from dropflow.graph.build import GraphBuilder
from dropflow.graph.templates import Kind, Link, Template
from dropflow.runners.executor import LocalExecutor
from dropflow.states import DropState

APP, IN, OUT, PRODUCER = 0, 1, 2, 3
DROPS = {
    "memory": "dlg.data.drops.memory.InMemoryDROP",
    "file": "dlg.data.drops.file.FileDROP",
    "null": "dlg.data.drops.data_base.NullDROP",
    "directory": "dlg.data.drops.directory.DirectoryDROP",
}


class Does(App):
    """An application that is given as a function."""

    def __init__(self, run: Callable[[Context], None]) -> None:
        self._run = run

    def run(self, context: Context) -> None:
        """Do it."""
        self._run(context)


class Bench:
    """One application with one open input and one output whose consumers stream."""

    def __init__(self, directory: Path, target: str = "memory") -> None:
        self.tmp = directory / "tmp"
        self.tmp.mkdir(parents=True)
        templates = (
            Template(key="a", name="a", kind=Kind.APP),
            Template(key="i", name="i", kind=Kind.DATA, component=DROPS["memory"]),
            Template(key="o", name="o", kind=Kind.DATA, component=DROPS[target]),
            Template(key="p", name="p", kind=Kind.APP),
        )
        links = (Link(source=IN, target=APP), Link(source=APP, target=OUT), Link(source=PRODUCER, target=IN))
        self.executor = LocalExecutor(
            ExecutorSpec(session="s", directory=str(directory), templates=templates, links=links)
        )
        self.opened: list[StreamOpened] = []
        self.executor.on_stream_opened = self.opened.append

    def run(self, app: App | Callable[[Context], None], *streams: Handle) -> AttemptResult:
        """One attempt."""
        self.executor._apps[APP] = app if isinstance(app, App) else Does(app)
        inputs = tuple(Input(IN, "i", IN, 0, DropState.WRITING, stream) for stream in streams)
        task = Task(7, 1, APP, "a", (), inputs, (Output(OUT, "o", OUT, 1, streams=True),), is_ahead=bool(streams))
        return self.executor.execute(task)


Make = Callable[..., Bench]


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Make]:
    """Makes benches that give back the standard streams."""
    with ExitStack() as stack:

        def make(name: str = "", target: str = "memory") -> Bench:
            found = Bench(tmp_path / name, target)
            stack.callback(found.executor.close)
            return found

        yield make


@pytest.fixture
def bench(make_bench: Make) -> Bench:
    """For a memory drop."""
    return make_bench()


def test_appended_data_can_be_read_before_the_end(bench: Bench) -> None:
    """The stream of an output is announced once, with its first bytes, and has all data before the attempt is over."""
    seen: list[bytes] = []

    def app(context: Context) -> None:
        (output,) = context.outputs
        output.write("first")
        with StreamReader(bench.opened[0].handle.location) as reader, output.open() as stream:
            seen.append(reader.read(100))
            stream.write(b" second")
            stream.flush()
            seen.append(reader.read(100))

    result = bench.run(app)

    assert result.failure is None
    assert seen == [b"first", b" second"]
    assert [(opened.drop, opened.attempt, opened.target) for opened in bench.opened] == [(7, 1, OUT)]
    assert Path(result.handles[OUT].location).read_bytes() == b"first second"


@pytest.mark.parametrize("how", ["put", "path", "nothing"])
def test_data_that_are_not_appended_is_visible_at_the_end(bench: Bench, how: str) -> None:
    """A value, a program's own file, or nothing at all: there is nothing to read before it is complete."""

    def app(context: Context) -> None:
        (output,) = context.outputs
        if how == "put":
            output.put({"a": 1}, "json")
        elif how == "path":
            output.path.write_bytes(b"content")

    assert bench.run(app).failure is None
    assert bench.opened == []


@pytest.mark.parametrize("target", ["null", "directory"])
def test_some_data_cannot_be_read_while_they_are_written(make_bench: Make, target: str) -> None:
    """Writing to a directory as a stream is an error."""
    bench = make_bench(target=target)
    said: list[bool] = []
    bench.run(lambda context: said.append(context.outputs[0].streams))

    assert said == [False]


@pytest.mark.slow
def test_a_failure_leaves_nothing_behind(bench: Bench) -> None:
    """Neither the content nor what was still in a buffer, which is thrown away; the stream is for others to remove."""

    def app(context: Context) -> None:
        (output,) = context.outputs
        output.write(b"begun")
        output.open().write(b"still in its buffer")
        raise ValueError("boom")

    result = bench.run(app)
    gc.collect()

    assert result.failure is not None
    assert [path.name for path in bench.tmp.iterdir()] == [Path(bench.opened[0].handle.location).name]


def test_an_attempt_that_is_aborted_while_it_writes_ends(bench: Bench) -> None:
    """The next write is refused, and so is one that waits."""

    def app(context: Context) -> None:
        context.outputs[0].write(b"begun")
        bench.executor.abort(7, 1)
        context.outputs[0].write(b"more")
        raise AssertionError("it went on")

    result = bench.run(app)

    assert result.failure is not None
    assert result.failure.kind == "Interrupted"


@pytest.mark.parametrize(
    ("blocks", "is_text"),
    [
        (["gr\u00fc", "\u00dfe"], True),
        (["gr\u00fc", b"\xff", "\u00dfe".encode()], False),
        (["gr\u00fc", b"\xc3"], False),
        ([b"gr", "\u00fc"], False),
    ],
    ids=["text", "bytes in it", "bytes at its end", "bytes first"],
)
def test_a_copy_is_what_was_written(make_bench: Make, blocks: list[str | bytes], *, is_text: bool) -> None:
    """Block by block, whether it is text, begins as text, or ends in the middle of a character."""
    source, target = make_bench("source"), make_bench("target")
    copies: list[AttemptResult] = []

    def app(context: Context) -> None:
        for block in blocks:
            context.outputs[0].write(block)

    written = source.run(app)
    stream = source.opened[0].handle
    node = Template(key="c", name="c", kind=Kind.APP, component="dlg.apps.simple.CopyApp")
    copies.append(target.run(CopyApp(node), stream))
    whole = b"".join(block.encode() if isinstance(block, str) else block for block in blocks)
    copy = copies[0].handles[OUT]

    assert Path(copy.location).read_bytes() == whole
    assert written.handles[OUT].text is is_text
    if is_text:
        assert copy.text


@pytest.mark.parametrize(
    ("app", "data", "declared", "streams"),
    [
        ("dlg.apps.simple.CopyApp", "memory", True, True),
        ("dlg.apps.simple.CopyApp", "file", True, True),
        ("dlg.apps.simple.CopyApp", "memory", False, False),
        ("dlg.apps.simple.CopyApp", "directory", True, False),
        ("dlg.apps.simple.CopyApp", "null", True, False),
        ("dlg.apps.simple.GenericGatherApp", "memory", True, False),
        ("dlg.apps.bash_shell_app.BashShellApp", "memory", True, False),
        ("dlg.apps.bash_shell_app.StreamingInputBashApp", "memory", True, True),
        ("dlg.apps.bash_shell_app.StreamingInputOutputBashApp", "memory", True, True),
        ("dlg.apps.crc.CRCStreamApp", "memory", True, True),
    ],
)
def test_which_links_stream(app: str, data: str, *, declared: bool, streams: bool) -> None:
    """Declared links stream if the data class and the application support it."""
    builder = GraphBuilder("links").app("A").data("x", component=DROPS[data]).app("B", component=app)
    graph = builder.connect("A", "x", streaming=True).connect("x", "B", streaming=declared).build()

    assert streaming_links(graph) == ((1,) if streams else ())


def test_streams_of_the_same_name_have_files_of_their_own(bench: Bench) -> None:
    """The data of a scatter have one name: reading them by path gives each of them, and changes none."""
    streams, files = [], [bench.tmp / "grown0", bench.tmp / "grown1"]
    for number, file in enumerate(files):
        file.write_bytes(b"content %d" % number)
        publisher = StreamPublisher(f"{bench.tmp}/{number}.stream", str(file), lambda: None)
        publisher.end(Handle(kind="shm", location=str(file), size=9))
        streams.append(Handle(kind="stream", location=f"{bench.tmp}/{number}.stream"))
    seen: list[bytes] = []
    result = bench.run(
        lambda context: seen.extend(path.read_bytes() for path in [data.path for data in context.inputs]), *streams
    )

    assert result.failure is None
    assert seen == [file.read_bytes() for file in files] == [b"content 0", b"content 1"]


def _ended_stream(bench: Bench) -> tuple[Path, Handle]:
    """A file, and the stream that has written it."""
    file = bench.tmp / "grown"
    file.write_bytes(b"content")
    publisher = StreamPublisher(f"{bench.tmp}/0.stream", str(file), lambda: None)
    publisher.end(Handle(kind="shm", location=str(file), size=7))
    return file, Handle(kind="stream", location=f"{bench.tmp}/0.stream")


def test_a_streamed_input_is_read_by_path_without_a_copy(bench: Bench) -> None:
    """The path of a streamed input is another name of its file, as long as both are on one file system."""
    file, stream = _ended_stream(bench)
    same: list[bool] = []
    result = bench.run(lambda context: same.append(context.inputs[0].path.samefile(file)), stream)

    assert result.failure is None
    assert same == [True]


def test_a_streamed_input_must_not_be_changed(bench: Bench) -> None:
    """As with all inputs: an application that changes the file at the path of its input fails."""
    _, stream = _ended_stream(bench)
    result = bench.run(lambda context: context.inputs[0].path.write_bytes(b"something else"), stream)

    assert result.failure is not None
    assert "was changed while it was read" in str(result.failure)
