"""Sessions whose names have blanks and colons, on a real node manager behind its server."""

import json
from contextlib import closing
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from dropflow.api.client import Client
from dropflow.cli.main import main
from managers.node.manager import NodeManager
from managers.service import Service
from tests.cli.graph_documents import document, link, node

NAME = "a graph_2025-01-01T10:00:00.123456+01"


def graph() -> bytes:
    """Return an application that writes the name of its session into a file."""
    name_file = node("file", "File", filepath="name.txt")
    return document(
        [node("write", "BashShellApp", command='echo "$DLG_SESSION_ID" > {io}'), name_file], [link("write", "file")]
    )


def test_a_name_with_blanks_works_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """submit, the API, DALiuGE's paths, pages, fetch and a restarted node use the name of the session unchanged."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.graph").write_bytes(graph())

    def command(*arguments: str) -> tuple[object, str]:
        with pytest.raises(SystemExit, match=r"^\d+$") as ended:
            main([*arguments, "--output", "json"])
        return ended.value.code, capsys.readouterr().out

    with closing(NodeManager("n", root=tmp_path / "n", runner="threads", workers=1)) as manager:
        served = Service(manager, token=None)
        served.start()
        status, answer = command("submit", "g.graph", "--name", NAME, "--wait", "--to", served.url)
        page = json.loads(answer)["url"]
        quoted = page.rpartition("/")[2]
        assert (status, json.loads(answer)["session"]) == (0, NAME)
        assert " " not in page
        with urlopen(page) as shown:  # noqa: S310 - our own server
            assert "a graph_2025" in shown.read().decode()
        with urlopen(f"{served.url}/api/sessions/{quoted}/status") as answer:  # noqa: S310
            assert json.loads(answer.read()) == 4
        assert command("watch", NAME, "--once", "--to", served.url)[0] == 0
        assert command("fetch", NAME, "--to", served.url, "-o", "got")[0] == 0
        found = [path.read_text() for path in (tmp_path / "got").rglob("name.txt")]
        assert found == [f"{NAME}\n"]
        served.close()
    assert [path.name for path in (tmp_path / "n" / "sessions").iterdir()] == [quoted.replace("%3a", "%3A")]
    with closing(NodeManager("n", root=tmp_path / "n", runner="threads", workers=1)) as manager:
        assert [info.session for info in manager.sessions()] == [NAME]
        manager.delete(NAME)
        assert list((tmp_path / "n" / "sessions").iterdir()) == []


def test_clients_of_daliuge_name_their_sessions_themselves(tmp_path: Path) -> None:
    """A session that is created over DALiuGE's paths has its name on all paths, also after a restart."""
    drops = [{"oid": "A", "categoryType": "Data", "dropclass": "dlg.data.drops.memory.InMemoryDROP"}]
    with closing(NodeManager("n", root=tmp_path / "n", runner="threads", workers=1)) as manager:
        served = Service(manager, token=None)
        served.start()

        def post(path: str, body: bytes, kind: str) -> None:
            headers = {"Content-Type": kind}
            with urlopen(Request(f"{served.url}{path}", body, headers)) as answer:  # noqa: S310 - our own server
                assert answer.status == 200

        post("/api/sessions", json.dumps({"sessionId": "x y"}).encode(), "application/json")
        post("/api/sessions/x%20y/graph/append", json.dumps(drops).encode(), "application/json")
        post("/api/sessions/x%20y/deploy", b"completed=A", "application/x-www-form-urlencoded")
        with Client(served.url) as client:
            assert client.session("x y").session == "x y"
        served.close()
    with closing(NodeManager("n", root=tmp_path / "n", runner="threads", workers=1)) as manager:
        assert [info.session for info in manager.sessions()] == ["x y"]
