"""Graphs in repositories of git, over files and HTTP, by the real git."""

import base64
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dropflow.errors import BadFileError, UsageError
from dropflow.graph.notes import repository_of
from translator.pipeline import translate
from translator.repository import fetch_file, is_repository_address, list_graphs, parse_address

ROOT = Path(__file__).resolve().parents[2]
GRAPH = (ROOT / "examples" / "hello.graph").read_bytes()
TOKEN = "not-to-be-seen"
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(where: Path, *arguments: str) -> str:
    """Run git in a directory."""
    known = {"GIT_CONFIG_GLOBAL": "/dev/null", "HOME": str(where)}
    who = ("-c", "user.name=A", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    command = ["git", "-C", str(where), *who, *arguments]
    done = subprocess.run(command, env={**os.environ, **known}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two commits, a tag, a link, and a hook; the cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    work = tmp_path / "ours"
    (work / "graphs").mkdir(parents=True)
    git(work, "init", "-q")
    (work / "graphs" / "hello.graph").write_bytes(GRAPH)
    (work / "link.graph").symlink_to("/etc/passwd")
    git(work, "add", "-A")
    git(work, "commit", "-qm", "one")
    git(work, "tag", "v1")
    (work / "graphs" / "hello.graph").write_bytes(GRAPH.replace(b"Hello", b"Hullo"))
    (work / "other.graph").write_bytes(GRAPH)
    git(work, "add", "-A")
    git(work, "commit", "-qm", "two")
    git(work, "update-server-info")
    return work


Handler = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture
def served() -> Iterator[Callable[[Handler], str]]:
    """A function that starts a server with a handler of requests, and returns its address."""
    servers = []

    def start(handle: Handler) -> str:
        class Requests(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                handle(self)

            do_POST = do_GET  # noqa: N815 - its name in the library

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"git+http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def backend(root: Path, token: str = "") -> Handler:
    """Answer requests by ``git http-backend``; if there is a token, only those that have it."""

    def handle(request: BaseHTTPRequestHandler) -> None:
        wanted = "Basic " + base64.b64encode(f"oauth2:{token}".encode()).decode()
        if token and request.headers.get("Authorization") != wanted:
            request.send_response(401)
            request.send_header("WWW-Authenticate", 'Basic realm="git"')
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        path, _, query = request.path.partition("?")
        environment = {
            "GIT_PROJECT_ROOT": str(root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": request.command,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
            "PATH": os.environ["PATH"],
        }
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        request.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in {**fields, "Content-Length": str(len(content))}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(content)

    return handle


@pytest.mark.slow
def test_branches_tags_and_commits_are_read(repository: Path) -> None:
    """Each gives the file of its commit; a commit that is in the cache is read without its repository."""
    place = f"git+file://{repository}"
    newest, tagged = fetch_file(f"{place}#graphs/hello.graph"), fetch_file(f"{place}@v1#graphs/hello.graph")
    shutil.move(repository, repository.with_name("moved"))
    again = fetch_file(f"{place}@{tagged.note.commit}#graphs/hello.graph")

    assert newest.content != tagged.content == again.content == GRAPH
    assert newest.note.commit == git(repository.with_name("moved"), "rev-parse", "HEAD")
    assert again.note.digest == tagged.note.digest
    with pytest.raises(BadFileError, match="git: "):
        fetch_file(f"{place}@main#graphs/hello.graph")


@pytest.mark.slow
def test_a_git_that_was_killed_does_not_lock_the_cache(repository: Path, tmp_path: Path) -> None:
    """The lock files that a killed git leaves are removed, since no other one runs in the cache."""
    address = f"git+file://{repository}#graphs/hello.graph"
    fetch_file(address)
    (cache,) = (tmp_path / "cache").glob("**/*.git")
    (cache / "shallow.lock").touch()

    assert fetch_file(address).note.commit == git(repository, "rev-parse", "HEAD")


@pytest.mark.slow
def test_the_graph_keeps_where_it_was_read(repository: Path) -> None:
    """The physical graph has address, commit and digest, with which its session can be repeated."""
    file = fetch_file(f"git+file://{repository}@v1#graphs/hello.graph")
    note = repository_of(translate(file).graph)

    assert note == file.note
    assert note.commit == git(repository, "rev-parse", "v1")
    assert str(repository) in note.address


@pytest.mark.slow
def test_a_run_tells_the_commit(repository: Path, tmp_path: Path) -> None:
    """A run of a graph in a repository has its address and commit in its notes and in its signature."""
    address = f"git+file://{repository}@v1#graphs/hello.graph"
    dropflow = [sys.executable, "-m", "dropflow"]
    run = [*dropflow, "run", address, "--keep", str(tmp_path / "run"), "--runner", "threads", "--output", "json"]
    ran = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True)
    told = subprocess.run(
        [*dropflow, "explain", str(tmp_path / "run"), "--origin"], capture_output=True, text=True, check=True
    )
    commit = git(repository, "rev-parse", "v1")

    assert [note for note in json.loads(ran.stdout)["notes"] if commit in note and address in note]
    assert f"commit      {commit}, file " in told.stdout


@pytest.mark.slow
def test_the_graphs_of_a_repository_are_listed(repository: Path) -> None:
    """They are those of one commit, with addresses of that commit; without a path the error names them."""
    listed = list_graphs(f"git+file://{repository}@main")

    assert list(listed.graphs) == ["graphs/hello.graph", "link.graph", "other.graph"]
    assert list(list_graphs(f"git+file://{repository}#graphs").graphs) == ["graphs/hello.graph"]
    assert fetch_file(listed.graphs["other.graph"]).note.commit == listed.commit
    with pytest.raises(UsageError, match="names a repository and no graph") as told:
        fetch_file(f"git+file://{repository}")
    assert "graphs/hello.graph" in told.value.hint


@pytest.mark.slow
def test_a_server_of_git_and_one_of_plain_files_are_read(
    repository: Path, served: Callable[[Handler], str], tmp_path: Path
) -> None:
    """Over HTTP: the protocol of git, and a directory of files that knows nothing of git."""

    def plain(request: BaseHTTPRequestHandler) -> None:
        file = tmp_path / request.path.split("?")[0].strip("/")
        body = file.read_bytes() if file.is_file() else b""
        request.send_response(200 if file.is_file() else 404)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    for address in (served(backend(tmp_path)), served(plain)):
        fetched = fetch_file(f"{address}/ours/.git@v1#graphs/hello.graph")
        assert fetched.content == GRAPH
        assert fetched.note.commit == git(repository, "rev-parse", "v1")


@pytest.mark.slow
@pytest.mark.usefixtures("repository")
def test_a_token_is_used_and_not_shown(
    served: Callable[[Handler], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without it the error names the variable; a wrong one is in no error, and the right one in no file."""
    address = f"{served(backend(tmp_path, TOKEN))}/ours/.git@v1#graphs/hello.graph"
    with pytest.raises(BadFileError, match="git: ") as told:
        fetch_file(address)
    assert "DROPFLOW_GIT_TOKEN_127_0_0_1" in told.value.hint
    monkeypatch.setenv("DROPFLOW_GIT_TOKEN_127_0_0_1", "wrong-secret")
    with pytest.raises(BadFileError, match="git: ") as told:
        fetch_file(address)
    assert "wrong-secret" not in f"{told.value} {told.value.hint}"
    monkeypatch.setenv("DROPFLOW_GIT_TOKEN_127_0_0_1", TOKEN)

    assert fetch_file(address).content == GRAPH
    cached = [path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert cached
    assert not [body for body in cached if TOKEN.encode() in body]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tail", "text"),
    [
        ("@--upload-pack=touch x#a.graph", "not a branch, tag or commit"),
        ("@-x#a.graph", "not a branch, tag or commit"),
        ("@a..b#a.graph", "not a branch, tag or commit"),
        ("@main:x#a.graph", "not a branch, tag or commit"),
        ("#../a.graph", "leaves the repository"),
        ("#graphs/../../a.graph", "leaves the repository"),
        ("#.git/config", "leaves the repository"),
        ("#link.graph", "this is a link"),
        ("#graphs", "this is a directory"),
        ("#missing.graph", "there is no such file"),
        ("@missing#a.graph", "remote ref"),
    ],
)
def test_what_is_not_a_file_of_the_repository_is_refused(repository: Path, tail: str, text: str) -> None:
    """Options in place of a branch, paths that leave the repository, and links are errors with the address."""
    with pytest.raises((UsageError, BadFileError), match=text) as told:
        fetch_file(f"git+file://{repository}{tail}")
    assert told.value.where
    assert told.value.hint


@pytest.mark.parametrize(
    "address",
    [
        "git+ext::sh -c touch% x",
        "git+git://host/a#b.graph",
        "git+ftp://host/a#b.graph",
        "git+ssh://-oProxyCommand=x/a#b.graph",
        "git+https://user:secret@host/a#b.graph",
        "git+https:///a#b.graph",
        "git+https://host:port/a#b.graph",
        "git+file://host/a#b.graph",
        "git+https://host#b.graph",
        "https://github.com/a/b/blob/main",
    ],
)
def test_other_protocols_and_malformed_addresses_are_refused(address: str) -> None:
    """Git is not started, and a password is not in the error."""
    with pytest.raises(UsageError, match=r"address|repository|repositories|not that of a file") as told:
        fetch_file(address)
    assert "secret" not in f"{told.value} {told.value.where} {told.value.hint}"


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("https://github.com/o/r/blob/main/a/b.graph", "git+https://github.com/o/r@main#a/b.graph"),
        ("https://raw.githubusercontent.com/o/r/v1/b.graph", "git+https://github.com/o/r@v1#b.graph"),
        ("https://gitlab.com/o/sub/r/-/blob/main/b%20c.graph", "git+https://gitlab.com/o/sub/r@main#b c.graph"),
        ("https://gitlab.example.org/o/r/-/raw/v1/b.graph", "git+https://gitlab.example.org/o/r@v1#b.graph"),
        ("git+ssh://git@host/o/r@x/y#b.graph", "git+ssh://git@host/o/r@x/y#b.graph"),
        ("git+https://host/o/r#b.graph", "git+https://host/o/r@HEAD#b.graph"),
    ],
)
def test_pages_of_files_are_addresses(page: str, shown: str) -> None:
    """The address of a file's page at GitHub or GitLab means the file at that branch or tag."""
    assert is_repository_address(page)
    assert parse_address(page).shown == shown
