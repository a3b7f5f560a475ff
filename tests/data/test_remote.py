"""Contents in stores outside of this machine: S3 by moto's server, HTTP by the server of the standard library."""

import http.server
import os
import socket
import socketserver
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dropflow.clock import SystemClock
from dropflow.data.read import open_content, read
from dropflow.data.registry import store_for
from dropflow.data.remote import download, file_system, location_of, remove_remote, split_location, upload, url_of
from dropflow.data.repository import LocalRepository
from dropflow.data.store import Slot
from dropflow.errors import AppError, BadFileError, BadParameterError, MissingDependencyError, StorageError
from dropflow.execution.content_location import Handle
from dropflow.graph.build import GraphBuilder
from dropflow.graph.templates import Argument, Template
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.report import run_report
from dropflow.states import SessionState
from tests.s3_server import ask, make_bucket, s3_server

pytestmark = [
    pytest.mark.skipif(find_spec("s3fs") is None, reason="needs the extra stores"),
    pytest.mark.skipif(find_spec("moto") is None, reason="needs moto[s3] and flask-cors"),
]

Node = Callable[..., Template]
Slots = Callable[..., Slot]
S3_CLASS = "dlg.data.drops.s3_drop.S3DROP"
URL_CLASS = "dropflow.data.url.UrlStore"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server of S3."""
    with s3_server() as found:
        yield found


@pytest.fixture
def endpoint(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of the server, which has an empty bucket called ``bucket``."""
    make_bucket(server, monkeypatch)
    return server


def _objects(endpoint: str) -> dict[str, bytes]:
    """All that is in the bucket."""
    system, path = file_system(location_of("s3://bucket", {"endpoint_url": endpoint}))
    return {name.partition("/")[2]: system.cat_file(name) for name in system.find(path)}


def _put(endpoint: str, name: str, body: bytes) -> None:
    system, path = file_system(location_of(f"s3://bucket/{name}", {"endpoint_url": endpoint}))
    system.pipe_file(path, body)


def _s3(node: Node, endpoint: str, key: str = "sub/x.dat", **fields: object) -> Template:
    return node(S3_CLASS, category="S3", Bucket="bucket", Key=key, endpoint_url=endpoint, **fields)


def _write(template: Template, slot: Slot, body: bytes) -> Handle:
    part = store_for(template).part(slot)
    part.write(body)
    return part.finish()


@pytest.mark.slow
@pytest.mark.parametrize("key", ["x.dat", "q?.txt", "obs[1].fits", "star*"])
def test_a_content_is_committed_once(
    node: Node, slot: Slots, repository: LocalRepository, endpoint: str, key: str
) -> None:
    """Under its final name it is there after the commit only, whole; its size and checksum are known."""
    template = _s3(node, endpoint, f"sub/{key}")
    part = _write(template, slot(drop=1), b"0123456789")
    assert all(name.startswith("sub/.dropflow-trial-") for name in _objects(endpoint))
    content = repository.commit(1, 1, template, part)

    assert _objects(endpoint) == {f"sub/{key}": b"0123456789"}
    assert (content.kind, url_of(content.location), content.size) == ("url", f"s3://bucket/sub/{key}", 10)
    assert read(content) == b"0123456789"
    with open_content(content) as stream:
        assert [stream.read(4), stream.read()] == [b"0123", b"456789"]


@pytest.mark.slow
def test_what_is_not_committed_is_removed(
    node: Node, slot: Slots, repository: LocalRepository, endpoint: str, tmp_path: Path
) -> None:
    """A late attempt and one whose process was killed leave nothing, and do not change what another one committed."""
    template = _s3(node, endpoint)
    repository.commit(1, 2, template, _write(template, slot(drop=1, attempt=2), b"right"))
    late, lost = (_write(template, slot(drop=1, attempt=number), b"wrong") for number in (1, 3))
    repository.discard(late)
    assert len(_objects(endpoint)) == 2
    assert lost.location in repository.workspace.outside.read_text()
    LocalRepository(tmp_path / "session", "trial", SystemClock()).close()

    assert _objects(endpoint) == {"sub/x.dat": b"right"}


@pytest.mark.slow
def test_a_content_is_read_where_it_is(node: Node, slot: Slots, endpoint: str, tmp_path: Path) -> None:
    """A drop without producers has what is in the bucket; a file gets the name and bytes of the object."""
    _put(endpoint, "a#b/in.fits", b"SIMPLE")
    handle = store_for(_s3(node, endpoint, "a#b/in.fits")).initial(slot())
    download(handle, tmp_path / "copy")

    assert split_location(handle.location) == ("s3://bucket/a#b/in.fits", {"endpoint_url": endpoint})
    assert (handle.size, (tmp_path / "copy").read_bytes()) == (6, b"SIMPLE")


@pytest.mark.slow
def test_what_is_not_there_is_named(node: Node, slot: Slots, endpoint: str) -> None:
    """A missing object and a missing bucket are errors with the URL and the node."""
    for fields in ({"Key": "none"}, {"Bucket": "nowhere", "Key": "none"}):
        given = {"Bucket": "bucket", "endpoint_url": endpoint} | fields
        with pytest.raises(BadFileError, match=f"nothing at s3://{given['Bucket']}/none") as caught:
            store_for(node(S3_CLASS, **given)).initial(slot())
        assert "the data" in caught.value.hint
    with pytest.raises(StorageError, match=r"s3://nowhere/.*cannot be written.*bucket does not exist"):
        _write(node(S3_CLASS, Bucket="nowhere", Key="x", endpoint_url=endpoint), slot(), b"x")


@pytest.mark.slow
def test_a_content_that_changes_is_an_error(
    node: Node, slot: Slots, repository: LocalRepository, endpoint: str
) -> None:
    """Readers get what was committed, or an error with the URL: after another writer, and without the bucket."""
    template = _s3(node, endpoint)
    content = repository.commit(1, 1, template, _write(template, slot(drop=1), b"0123456789"))
    _put(endpoint, "sub/x.dat", b"0123456780")
    with pytest.raises(StorageError, match=r"s3://bucket/sub/x.dat has CRC-32 \w+ where \w+ was written"):
        read(content)
    _put(endpoint, "sub/x.dat", b"01")
    with pytest.raises(StorageError, match="has 2 bytes where there were 10"):
        read(content)
    part = _write(template, slot(drop=2), b"again")
    ask(endpoint, "reset", b"")
    with pytest.raises(StorageError, match=r"s3://bucket/sub/x.dat cannot be read: FileNotFoundError"):
        read(content)
    with pytest.raises(StorageError, match=r"s3://bucket/sub/x.dat cannot be committed"):
        repository.commit(2, 1, template, part)


@contextmanager
def _breaking(endpoint: str, after: int) -> Iterator[tuple[str, list[str]]]:
    """The address of a relay to a server. It breaks a connection after so many bytes each time that it is told to."""
    port, orders = int(endpoint.rpartition(":")[2]), list[str]()

    def pump(source: socket.socket, target: socket.socket, direction: str) -> None:
        passed = 0
        with suppress(OSError):
            while block := source.recv(1 << 16):
                target.sendall(block)
                passed += len(block)
                if passed > after and direction in orders:
                    orders.remove(direction)
                    break
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", port)) as server:
                up = threading.Thread(target=pump, args=(self.request, server, "up"))
                up.start()
                pump(server, self.request, "down")
                up.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Relay) as relay:
        relay.daemon_threads = True  # clients may keep connections open
        thread = threading.Thread(target=relay.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{relay.server_address[1]}", orders
        relay.shutdown()
        thread.join()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # s3fs leaves the broken connection
def test_a_large_object_comes_and_goes_although_connections_break(endpoint: str, tmp_path: Path) -> None:
    """What broke off is sent again, and no error: to a file, as a stream, and to the store."""
    body = os.urandom(11_000_000)
    _put(endpoint, "large", body)
    with _breaking(endpoint, after=2_000_000) as (relay, orders):
        options = {"endpoint_url": relay, "default_block_size": 5 << 20}
        handle = Handle(
            kind="url",
            location=location_of("s3://bucket/large", options),
            size=len(body),
            checksum=zlib.crc32(body),
        )
        orders.append("down")
        download(handle, tmp_path / "copy")
        left = [*orders]
        orders.append("down")
        streamed = read(handle)
        left += orders
        orders.append("up")
        again = location_of("s3://bucket/again", options)
        upload(str(tmp_path / "copy"), again, again)
        left += orders

    assert left == [], "a connection that did not break"
    assert (tmp_path / "copy").read_bytes() == body
    assert streamed == body
    assert _objects(endpoint)["again"] == body


@pytest.mark.slow
def test_refused_credentials_are_an_error(node: Node, slot: Slots, endpoint: str) -> None:
    """With the URL and where to look; to read and to write."""
    _put(endpoint, "sub/x.dat", b"x")
    template = _s3(node, endpoint)
    ask(endpoint, "reset-auth", b"0")
    try:
        for action in (lambda: store_for(template).initial(slot()), lambda: _write(template, slot(), b"x")):
            with pytest.raises(StorageError, match=r"s3://bucket/sub/.*cannot be \w+: PermissionError") as caught:
                action()
            assert "credentials" in caught.value.hint
    finally:
        ask(endpoint, "reset-auth", b"1000000000")


def test_secrets_are_refused(node: Node) -> None:
    """They would be in journals and on pages: each host has its own."""
    for template in (
        node(S3_CLASS, Bucket="b", Key="x", aws_secret_access_key="xyz"),
        node(URL_CLASS, url="s3://b/x", options={"secret": "xyz"}),
        node(URL_CLASS, url="https://h/x", options={"headers": {"Authorization": "xyz"}}),
        node(URL_CLASS, url="https://h/x", options={"headers": {"X-Name": "secret:xyz"}}),
        node(URL_CLASS, url="sftp://me:xyz@host/x"),
    ):
        with pytest.raises(BadParameterError, match=r"password|secret") as caught:
            store_for(template).check()
        assert "xyz" not in str(caught.value)
        assert "~/.aws/credentials" in caught.value.hint
    inner = {"s3_additional_kwargs": {"SSEKMSKeyId": "arn"}}
    assert url_of(location_of("s3://b/x", inner)) == "s3://b/x"


def test_urls_are_checked_before_anything_runs(node: Node, slot: Slots) -> None:
    """An empty URL, one without protocol, one of an unknown protocol, and bad options; and HTTP is not written."""
    for fields, text in (
        ({}, "does not name its url"),
        ({"url": "name.txt"}, "'name.txt' is not the URL"),
        ({"url": "nosuch://x/y"}, "no protocol 'nosuch'"),
        ({"url": "s3://b/{nonsense}"}, "unknown placeholder"),
        ({"url": "s3://b/x", "options": "[1]"}, "'options'"),
    ):
        with pytest.raises(BadParameterError, match=text):
            store_for(node(URL_CLASS, **fields)).check()
    with pytest.raises(BadParameterError, match="does not name its Bucket"):
        store_for(node(S3_CLASS)).check()
    with pytest.raises(BadParameterError, match="by HTTP"):
        store_for(node(URL_CLASS, url="https://host/x")).part(slot())


def test_a_missing_package_is_named(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint has the extra, and another host may have it."""
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(MissingDependencyError, match="fsspec") as caught:
        store_for(node(S3_CLASS, Bucket="b", Key="x")).check()

    assert "[stores]" in caught.value.hint
    assert caught.value.of_host


@pytest.mark.slow
def test_a_directory_is_refused(node: Node, slot: Slots, endpoint: str) -> None:
    """A program that makes a directory in place of a file gets an error, and nothing is written."""
    part = store_for(_s3(node, endpoint)).part(slot())
    Path(part.path()).mkdir()
    with pytest.raises(AppError, match=r"a directory, which cannot be written to s3://bucket/sub/x.dat"):
        part.finish()

    assert _objects(endpoint) == {}


def test_names_are_filled_in(node: Node, slot: Slots, repository: LocalRepository) -> None:
    """A URL has the placeholders of file names, and drops of a template with the same one share it."""
    memory = file_system("memory://x")[0]
    memory.store.clear()
    for url, shared in (("memory://x/{uid}.txt", ""), ("memory://x/y/", ""), ("memory://x/z", "memory://x/z")):
        store = store_for(node(URL_CLASS, url=url))
        part = store.part(slot(drop=1))
        part.write(b"x")
        content = repository.commit(1, 1, node(), part.finish())
        assert store.shared_name == shared
        assert read(content) == b"x"
    assert min(memory.store) == "/x/g_k_0.txt"
    assert len(memory.store) == 3
    remove_remote(["memory://x/none", content.location])
    assert len(memory.store) == 2


def test_a_content_that_cannot_be_removed_leaves_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The contents after it are removed, and the log has its URL."""
    memory = file_system("memory://x")[0]
    memory.store.clear()
    memory.pipe_file("/x/kept", b"x")
    memory.pipe_file("/x/gone", b"x")
    remove = memory.rm_file
    warnings: list[str] = []

    def refuse(_self: object, path: str) -> None:
        if path == "/x/kept":
            raise PermissionError("not yours")
        remove(path)

    monkeypatch.setattr(type(memory), "rm_file", refuse)
    monkeypatch.setattr("dropflow.data.remote._log.warning", lambda text, *values: warnings.append(text % values))
    remove_remote(["memory://x/kept", "memory://x/gone"])

    assert set(memory.store) == {"/x/kept"}
    assert ["memory://x/kept" in warning for warning in warnings] == [True]


@pytest.mark.slow
def test_a_file_on_a_web_server_is_read(node: Node, slot: Slots, tmp_path: Path) -> None:
    """Over HTTP, by its URL."""
    (tmp_path / "in.txt").write_bytes(b"text" * 1000)
    handler = partial(_Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{found.server_port}"
        handle = store_for(node(URL_CLASS, url=f"{url}/in.txt")).initial(slot())
        assert read(handle) == b"text" * 1000
        with pytest.raises(BadFileError, match=r"nothing at http://.*/none"):
            store_for(node(URL_CLASS, url=f"{url}/none")).initial(slot())
        found.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("status", [401, 403, 410, 500, 503])
def test_only_an_answer_that_says_so_means_that_nothing_is_there(node: Node, slot: Slots, status: int) -> None:
    """Any other one is an error of the store, with its status: a server that is busy may have the file."""

    class Refusing(_Quiet):
        def do_GET(self) -> None:
            """Refuse everything."""
            self.send_error(status)

        def do_HEAD(self) -> None:
            """Refuse everything."""
            self.send_error(status)

    kind, text = (BadFileError, "nothing at") if status == 410 else (StorageError, f"cannot be found: .*{status}")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(kind, match=text):
            store_for(node(URL_CLASS, url=f"http://127.0.0.1:{server.server_port}/x")).initial(slot())
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


# Runs that reuse results: what a store promises stands for a content that is not read.


class _Tagged(_Quiet):
    """Tells an ETag, which a prefix makes weak; counts what is read."""

    prefix = ""
    read: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """Note the request."""
        self.read.append(self.path)
        super().do_GET()

    def end_headers(self) -> None:
        """Add the tag."""
        path = Path(self.translate_path(self.path))
        if path.is_file():
            self.send_header("ETag", f'{self.prefix}"{zlib.crc32(path.read_bytes()):x}"')
        super().end_headers()


class _Runs:
    """Runs of the graph in > Upper > text, which reuse results."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DROPFLOW_STORE", str(folder / "store"))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        self._folder = folder
        self._count = 0

    def run(self, url: str, endpoint: str = "", *, command: str = "", **options: Any) -> tuple[str, bool]:
        """Return what it writes, and whether its application ran."""
        self._count += 1
        given = {"endpoint_url": endpoint} if endpoint else {}
        fields = (Argument(name="url", value=url), Argument(name="options", value=given, type="Json"))
        command = command or "tr a-z A-Z < %i[0] > %o[0]"
        shell = (Argument(name="command", value=command, parameter_type="ComponentParameter"),)
        builder = GraphBuilder("g").data("in", component=URL_CLASS, arguments=fields)
        builder.app("Upper", component="dlg.apps.bash_shell_app.BashShellApp", arguments=shell).data("text")
        place = self._folder / f"run{self._count}"
        found = local_run.run(
            builder.connect("in", "Upper").connect("Upper", "text").build(),
            local_run.prepare_directory(place),
            RunOptions(runner="inline", reuse=True, **options),
        )
        assert found.status is SessionState.FINISHED
        (text,) = run_report(place).results.results
        return (place / text.path).read_text(), found.computed == 1


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Runs:
    """Runs with a result store of their own."""
    return _Runs(tmp_path, monkeypatch)


@pytest.mark.slow
def test_an_unchanged_object_is_not_read_again(runs: _Runs, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed one is: as S3 tells by its ETag. An object of another bucket or name is another one."""
    import s3fs  # noqa: PLC0415 - an extra

    calls: list[str] = []
    call = s3fs.S3FileSystem._call_s3

    async def count(self: Any, method: str, *args: Any, **named: Any) -> Any:
        calls.append(method)
        return await call(self, method, *args, **named)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", count)
    _put(endpoint, "in.txt", b"some")
    assert runs.run("s3://bucket/in.txt", endpoint) == ("SOME", True)
    assert calls.count("get_object") == 1
    calls.clear()
    assert runs.run("s3://bucket/in.txt", endpoint) == ("SOME", False)
    assert "get_object" not in calls
    _put(endpoint, "in.txt", b"more")
    assert runs.run("s3://bucket/in.txt", endpoint) == ("MORE", True)
    _put(endpoint, "other.txt", b"some")
    assert runs.run("s3://bucket/other.txt", endpoint) == ("SOME", True)
    _put(endpoint, "in.txt", b"some")
    assert runs.run("s3://bucket/in.txt", endpoint) == ("SOME", False)


@pytest.mark.slow
def test_only_strong_tags_of_web_servers_count(runs: _Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weak ones may be those of another content: it is read again, unless size and time are to be trusted."""
    file = tmp_path / "in.txt"
    file.write_bytes(b"some")
    monkeypatch.setattr(_Tagged, "read", read := [])
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Tagged, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/in.txt"
        assert runs.run(url) == ("SOME", True)
        assert read == ["/in.txt"]
        assert runs.run(url) == ("SOME", False)
        assert read == ["/in.txt"]
        file.write_bytes(b"more")
        assert runs.run(url) == ("MORE", True)
        monkeypatch.setattr(_Tagged, "prefix", "W/")
        assert runs.run(url) == ("MORE", True)
        assert runs.run(url) == ("MORE", True)
        assert runs.run(url, trust_times=True) == ("MORE", True)
        assert runs.run(url, trust_times=True) == ("MORE", False)
        server.shutdown()


@pytest.mark.slow
def test_a_result_of_an_object_that_changed_meanwhile_is_not_stored(
    runs: _Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be that of the content before or after."""
    file = tmp_path / "in.txt"
    file.write_bytes(b"some")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Tagged, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("CHANGED", str(file))
        url, command = f"http://127.0.0.1:{server.server_port}/in.txt", "cat %i[0] > %o[0]; echo more > $CHANGED"
        assert runs.run(url, command=command) == ("some", True)
        file.write_bytes(b"some")
        assert runs.run(url, command=command) == ("some", True)
        server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["inline", "processes"])
def test_a_graph_reads_and_writes_a_bucket(tmp_path: Path, endpoint: str, runner: str) -> None:
    """Programs get files with the names of the objects; the session removes what it did not commit."""
    _put(endpoint, "raw/in.txt", b"hello\n" * 100_000)
    builder = GraphBuilder("g")

    def field(name: str, value: str) -> Argument:
        return Argument(name=name, value=value, parameter_type="ComponentParameter")

    def data(name: str, key: str) -> None:
        fields = (field("Bucket", "bucket"), field("Key", key), field("endpoint_url", endpoint))
        builder.data(name, component=S3_CLASS, category="S3", arguments=fields)

    def app(name: str, command: str) -> None:
        arguments = (field("command", command),)
        builder.app(
            name, component="dlg.apps.bash_shell_app.BashShellApp", category="BashShellApp", arguments=arguments
        )

    data("in", "raw/in.txt")
    app("Upper", "test $(basename %i[0]) = in.txt && tr a-z A-Z < %i[0] > %o[0]")
    data("out", "done/out.txt")
    app("Count", "wc -l < %i[0] > %o[0]")
    data("count", "done/count.txt")
    for one, other in (("in", "Upper"), ("Upper", "out"), ("out", "Count"), ("Count", "count")):
        builder.connect(one, other)
    status = local_run.run(
        builder.build(), local_run.prepare_directory(tmp_path / "run"), RunOptions(runner=runner)
    ).status

    assert status is SessionState.FINISHED
    assert {name: len(body) for name, body in _objects(endpoint).items()} == {
        "raw/in.txt": 600_000,
        "done/out.txt": 600_000,
        "done/count.txt": 7,
    }
    assert list((tmp_path / "run" / "files").iterdir()) == []
