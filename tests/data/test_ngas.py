"""Files in an NGAS archive: the drop and the application, against a stand-in for its server.

The stand-in checks what the real one needs: the command is the path, its parameters are in the query, a file is the
body of a POST with a length. It answers with the status document of NGAS, refuses by 400, and keeps versions of a file.
"""

import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import quoteattr

import pytest

from dropflow.data.read import open_content, read
from dropflow.data.registry import store_for
from dropflow.data.repository import LocalRepository
from dropflow.data.store import Slot
from dropflow.errors import BadFileError, StorageError
from dropflow.graph.templates import Template
from dropflow.testing.attempts import Given, try_app

Node = Callable[..., Template]
Slots = Callable[..., Slot]
NGAS_CLASS = "dlg.data.drops.ngas.NgasDROP"
ARCHIVING = "dlg.apps.archiving.NgasArchivingApp"


class Archive(http.server.BaseHTTPRequestHandler):
    """Answers as an NGAS server."""

    files: ClassVar[dict[str, list[bytes]]] = {}
    refusal: ClassVar[str] = ""

    def do_GET(self) -> None:
        """Send a file, or what is known of one."""
        query = parse_qs(urlsplit(self.path).query, strict_parsing=True)
        (name,) = query["file_id"]
        versions = self.files.get(name)
        command = urlsplit(self.path).path
        if versions is None:
            self._tell(400, "FAILURE", f"NGAMS_ER_UNAVAIL_FILE:4014:ERROR: Requested file: {name} not available.")
        elif command == "/RETRIEVE":
            self._send(200, "application/octet-stream", versions[-1])
        elif command == "/STATUS":
            found = f'<DiskStatus><FileStatus FileId={quoteattr(name)} FileSize="{len(versions[-1])}"/></DiskStatus>'
            self._tell(200, "SUCCESS", "Successfully handled command STATUS", found)
        else:
            self._tell(400, "FAILURE", f"NGAMS_ER_ILL_CMD:4016:ERROR: {command}")

    def do_POST(self) -> None:
        """Take a file."""
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, strict_parsing=True)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert (parts.path, self.headers["Content-Type"]) == ("/QARCHIVE", query["mime_type"][0])
        if self.refusal:
            self._tell(400, "FAILURE", self.refusal)
            return
        self.files.setdefault(query["filename"][0], []).append(body)
        self._tell(200, "SUCCESS", "Successfully handled Archive Push Request")

    def _tell(self, code: int, status: str, message: str, found: str = "") -> None:
        text = f"<NgamsStatus><Status Status={quoteattr(status)} Message={quoteattr(message)}/>{found}</NgamsStatus>"
        self._send(code, "text/xml", text.encode())

    def _send(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The fields that name a server with an empty archive."""
    monkeypatch.setattr(Archive, "files", {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Archive) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield {"ngasSrv": "127.0.0.1", "ngasPort": server.server_port, "ngasTimeout": 10}
        server.shutdown()
        thread.join()


def test_a_file_is_archived_and_read(
    node: Node, slot: Slots, repository: LocalRepository, archive: dict[str, Any]
) -> None:
    """Whole, under the id of the node or one made from the drop's, and is there for a drop without producers, too."""
    for name, expected in (("a b%c{uid}", "a b%cg_k_0"), ("", "")):
        template = node(NGAS_CLASS, ngasFileId=name, **archive)
        part = store_for(template).part(slot(drop=1))
        part.write(b"0123456789")
        content = repository.commit(1, 1, template, part.finish())
        assert expected in Archive.files
        assert [read(content), read(store_for(template).initial(slot()))] == [b"0123456789"] * 2
        with open_content(content) as stream:
            assert stream.read(3) == b"012"
        Archive.files.clear()
        Archive.files[""] = [b""]


def test_what_the_server_says_is_in_the_error(
    node: Node, slot: Slots, archive: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is not there, one that is refused, and no server: each error has the address, and what to do."""
    template = node(NGAS_CLASS, ngasFileId="x.ms.tar", **archive)
    place = f"ngas://127.0.0.1:{archive['ngasPort']}/x.ms.tar"
    with pytest.raises(BadFileError, match=f"nothing at {place}"):
        store_for(template).initial(slot())
    monkeypatch.setattr(Archive, "refusal", "NGAMS_AL_DISK_FULL: no disk")
    with pytest.raises(StorageError, match=f"{place} cannot be written: .*400.*NGAMS_AL_DISK_FULL") as caught:
        store_for(template).part(slot()).finish()
    assert caught.value.hint
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(StorageError, match=f"127.0.0.1:{port}/x cannot be found: .*refused"):
        store_for(node(NGAS_CLASS, ngasSrv="127.0.0.1", ngasPort=port, ngasFileId="x")).initial(slot())


def test_another_server_is_not_taken_for_an_archive(
    node: Node, slot: Slots, archive: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page in place of a status document is an error, and not a file that was archived."""
    monkeypatch.setattr(Archive, "_tell", lambda self, *_: self._send(200, "text/html", b"<p>Hello"))
    with pytest.raises(StorageError, match=r"cannot be written: .*not that of an NGAS server"):
        store_for(node(NGAS_CLASS, **archive)).part(slot()).finish()


@pytest.mark.parametrize("known", ["<DiskStatus/>", '<DiskStatus><FileStatus FileId="x"/></DiskStatus>'])
def test_a_file_of_unknown_size_is_not_taken_as_empty(
    node: Node, slot: Slots, archive: dict[str, Any], monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    """An answer that tells no size of the file is an error."""
    tell = Archive._tell
    monkeypatch.setattr(Archive, "_tell", lambda self, code, status, text, *_: tell(self, code, status, text, known))
    Archive.files["x"] = [b"0123456789"]

    with pytest.raises(StorageError, match=r"does not report the size of ngas://"):
        store_for(node(NGAS_CLASS, ngasFileId="x", **archive)).initial(slot())


def test_an_application_archives_its_inputs(tmp_path: Path, archive: dict[str, Any]) -> None:
    """Each under an id of its own; the log names them."""
    given = [Given("input", b"one"), Given("input", b"two")]
    got = try_app(ARCHIVING, tmp_path, inputs=given, fields=archive | {"ngasFileId": "x-{uid}"})

    assert got.result.failure is None
    assert sorted(body for (body,) in Archive.files.values()) == [b"one", b"two"]
    assert all(name.startswith("x-") for name in Archive.files)
    same = try_app(ARCHIVING, tmp_path, inputs=given, fields=archive | {"ngasFileId": "x"})
    assert "2 inputs would be written to ngas://" in same.failure.text


def test_an_application_writes_to_a_store(tmp_path: Path) -> None:
    """Under its final name once it is complete, and nothing else is left."""
    pytest.importorskip("fsspec", reason="needs the extra stores")
    url = f"file://{tmp_path}/store/out.dat"
    got = try_app(
        "dlg.apps.archiving.ExternalStoreApp", tmp_path / "run", inputs=[Given("input", b"one")], fields={"url": url}
    )

    assert got.result.failure is None
    assert {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()} == {"out.dat": b"one"}
    no = try_app("ExternalStoreApp", tmp_path / "run", inputs=[Given("input", b"one")], fields={"url": f"{url}/below"})
    assert f"{url}/" in no.failure.text
