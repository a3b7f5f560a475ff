"""The server of a manager: its routes, access, and addresses; and the cluster key on disk."""

import fcntl
import http.client
import json
import os
import re
import socket
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest

from dropflow.api.addresses import is_loopback
from dropflow.api.auth import AccessRules, read_key
from dropflow.api.client import Client
from dropflow.api.http_client import ClientRequest, HttpTransport
from dropflow.api.manager import Manager
from dropflow.api.operations import OPERATIONS, RELEASE, SESSIONS
from dropflow.api.requests import RetryRequest, SubmitQuery
from dropflow.api.routes import Limits, StreamSlots
from dropflow.api.session_records import SessionInfo, UserUse
from dropflow.api.signing import UserKey, derive_user_key, read_revoked
from dropflow.errors import (
    BadFileError,
    ConflictError,
    DropflowError,
    GoneError,
    HttpError,
    NotFoundError,
    NotOwnerError,
    QuotaError,
    StorageError,
    UsageError,
)
from dropflow.graph.physical import PhysicalGraph
from dropflow.web.tickets import request_ticket
from managers.composite.manager import Composite
from managers.deployment import Deployment
from managers.keys import ClusterKey, UserFiles, create, create_user, fingerprint, load, load_any, revoke
from managers.manager_server import Service, make_access_rules, manager_routes, url_of
from managers.node.manager import NodeManager
from tests.fake_manager import FakeManager, manager_with_sessions
from tests.filling import fill
from tests.regular_graphs import fan

TOKEN = "a-token-of-this-test"
SECRET = b"s" * 40


@pytest.fixture
def manager() -> FakeManager:
    """A fake manager with four sessions."""
    return manager_with_sessions()


@pytest.fixture
def service(manager: FakeManager) -> Iterator[Service]:
    """The manager, served on loopback with a token and a secret."""
    served = Service(manager, token=TOKEN, secret=SECRET)
    served.start()
    yield served
    manager.close()
    served.close()


def fetch(service: Service, path: str, **headers: str) -> tuple[int, bytes]:
    """Return status and body of a GET."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_requests_with_the_token_are_admitted(service: Service) -> None:
    """The client with the token gets an answer."""
    with Client(service.url, token=TOKEN) as client:
        assert client.info().role == "node"


def test_the_limits_of_a_service_hold_on_all_its_paths(manager: FakeManager) -> None:
    """Our paths and DALiuGE's refuse graphs that are deeper or larger than the limits."""
    served = Service(manager, token=TOKEN, limits=Limits(graph=1000, depth=5))
    served.start()
    try:
        with Client(served.url, token=TOKEN) as client:
            for graph, status in ((b"[" * 6, 400), (b" " * 1001, 413)):
                with pytest.raises(HttpError, match=r"nested 6 levels|larger than 1000 bytes") as refused:
                    client.submit(graph)
                assert refused.value.status == status
        assert _post(served, "/api/sessions", b'{"sessionId": "s"}') == 200
        assert _post(served, "/api/sessions/s/graph/append", b"[" * 6) == 400
        assert _post(served, "/api/sessions/s/graph/append", b" " * 1001) == 413
    finally:
        served.close()


def _post(service: Service, path: str, body: bytes) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    try:
        connection.request("POST", path, body=body, headers={"Authorization": f"Bearer {TOKEN}"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_signed_requests_are_admitted(service: Service) -> None:
    """Requests signed with the cluster key need no token."""
    with Client(service.url, secret=SECRET) as client:
        assert client.info().role == "node"


@pytest.mark.slow
def test_the_key_of_a_user_does_what_people_do(manager: FakeManager, tmp_path: Path) -> None:
    """Of all routes that may change something, it is enough for the sessions, and not for nodes and managers."""
    served = Service(manager, token=TOKEN, secret=SECRET, users=UserFiles.beside(tmp_path / "cluster.key"))
    served.start()
    transport = HttpTransport(served.url, token=None, secret=_user("alice"), timeout=60)
    routes = manager_routes(manager, StreamSlots(1), AccessRules(token=TOKEN))
    refused, admitted = set(), set()
    try:
        for route in routes:
            if route.method in ("GET", "HEAD") or route.public:
                continue
            target = re.sub(r"\{\w+\}", "x", route.path)
            try:
                transport.ask(ClientRequest(route.method, target))
            except DropflowError as error:
                is_refused = "the key of user alice is not enough" in error.text
                (refused if is_refused else admitted).add(f"{route.method} {route.path}")
            else:
                admitted.add(f"{route.method} {route.path}")
    finally:
        transport.close()
        served.close()

    session_path, drop = "/api/v1/sessions/{session}", "/api/v1/sessions/{session}/drops/{drop}"
    verbs = ("cancel", "pause", "continue", "rebalance", "force-continue", "resume", "retry", "release", "contents")
    assert admitted == {
        *(f"POST /api/v1/{name}" for name in ("sessions", "components", "probe", "tickets")),
        *(f"POST {session_path}/{verb}" for verb in verbs),
        *(f"DELETE {session_path}", f"POST {drop}/cancel"),
    }
    assert {
        f"PUT {session_path}/deployment",
        "POST /api/v1/children",
        "DELETE /api/v1/children",
        "POST /hop",
    } <= refused


def test_a_session_is_of_the_user_whose_key_submitted_it(manager: FakeManager, tmp_path: Path) -> None:
    """No user can submit for another, and only managers and the administrator tell whose a session is to be."""
    served = Service(manager, token=TOKEN, secret=SECRET, users=UserFiles.beside(tmp_path / "cluster.key"))
    served.start()
    try:
        for key, asked, owner in (
            ({"secret": _user("alice")}, "", "alice"),
            ({"secret": _user("alice")}, "bob", "alice"),
            ({"secret": SECRET}, "bob", "bob"),
            ({"token": TOKEN}, "", ""),
        ):
            with Client(served.url, **key) as client:  # type: ignore[arg-type]
                assert client.submit(fan(2), SubmitQuery(user=asked)).user == owner
    finally:
        served.close()


@pytest.mark.slow
def test_only_its_user_and_the_administrator_change_a_session(manager: FakeManager, tmp_path: Path) -> None:
    """Another user gets an error that names the owner, for each operation that changes it, and can look at it."""
    manager.add(fan(2), "hers", user="alice")
    served = Service(manager, token=TOKEN, secret=SECRET, users=UserFiles.beside(tmp_path / "cluster.key"))
    served.start()
    transport = HttpTransport(served.url, token=None, secret=_user("bob"), timeout=60)
    changes = [operation for operation in OPERATIONS if operation.users == "owner"]
    try:
        for operation in changes:
            for session, whose in (("hers", "of user alice"), ("running", "of the administrator")):
                target = operation.path.replace("{session}", session).replace("{drop}", "0")
                body = [b'{"rows": [0]}'] if operation is RELEASE else []
                with pytest.raises(NotOwnerError, match=f"is {whose}, and user bob cannot change it"):
                    transport.ask(ClientRequest(operation.method, target, body=body))
        with Client(served.url, secret=_user("bob")) as bob, Client(served.url, secret=_user("alice")) as alice:
            assert bob.session("hers").user == "alice"
            assert alice.cancel("hers", "", 1.0).status in ("CANCELLING", "CANCELLED")
            alice.delete("hers")
            with pytest.raises(NotFoundError, match="hers"):
                bob.delete("hers")
        with Client(served.url, token=TOKEN) as administrator:
            administrator.cancel("running", "", 1.0)
    finally:
        transport.close()
        served.close()
    assert len(changes) == 10


@pytest.mark.slow
def test_users_have_limits(manager: FakeManager, tmp_path: Path) -> None:
    """Running sessions and their drops count, also of one that runs again; limits that change count at once."""
    file = tmp_path / "cluster.key.limits"
    served = Service(manager, token=TOKEN, secret=SECRET, users=UserFiles.beside(tmp_path / "cluster.key"))
    served.start()
    drops = fan(2).drops
    with (
        closing(served),
        Client(served.url, secret=_user("alice")) as alice,
        Client(served.url, secret=_user("bob")) as bob,
        Client(served.url, token=TOKEN) as administrator,
    ):
        alice.submit(fan(2), SubmitQuery(session="one"))
        file.write_text("[default]\nsessions = 1\n[users.bob]\nsessions = 2\ndrops = 5\n")
        with pytest.raises(QuotaError, match="user alice has 1 running session, and may have 1") as refused:
            alice.submit(fan(2))
        assert "cancel one" in refused.value.hint
        assert bob.call(SESSIONS).users == (
            UserUse(user="alice", sessions=1, drops=drops, most_sessions=1),
            UserUse(user="bob", sessions=0, drops=0, most_sessions=2, most_drops=5),
        )
        with Client(served.url, secret=_user("carol")) as carol:
            own = UserUse(user="carol", sessions=0, drops=0, most_sessions=1)
            assert own in carol.call(SESSIONS).users  # also of a user without sessions, by the default
        page = fetch(served, "/sessions", Authorization=f"Bearer {TOKEN}")[1].decode()
        assert f"<bdi>alice</bdi>: 1 of 1 session, {drops} drops" in page
        assert "<bdi>bob</bdi>: 0 of 2 sessions, 0 of 5 drops" in page
        administrator.submit(fan(2))
        with pytest.raises(
            QuotaError, match="user bob has 0 drops in running sessions and may have 5, and this"
        ) as refused:
            bob.submit(fan(20))
        assert "ask the administrator" in refused.value.hint  # waiting would not help
        bob.submit(fan(2))
        with pytest.raises(QuotaError, match=f"user bob has {drops} drops in running sessions and may have 5"):
            bob.submit(fan(2))

        alice.cancel("one", "", 1.0)
        alice.submit(fan(2), SubmitQuery(session="two"))
        with pytest.raises(QuotaError, match="user alice has 1 running session"):
            alice.retry("one", RetryRequest())
        file.unlink()
        alice.submit(fan(2))


@pytest.mark.parametrize("text", ["sessions = 1", "[default]\nsession = 1", "[default]\nsessions = -1", "?"])
def test_no_user_submits_while_the_limits_cannot_be_read(text: str, manager: FakeManager, tmp_path: Path) -> None:
    """A mistake in the file does not lift the limits, and is a finding; the administrator submits all the same."""
    (tmp_path / "cluster.key.limits").write_text(text)
    served = Service(manager, token=TOKEN, secret=SECRET, users=UserFiles.beside(tmp_path / "cluster.key"))
    served.start()
    with (
        closing(served),
        Client(served.url, secret=_user("alice")) as alice,
        Client(served.url, token=TOKEN) as administrator,
    ):
        with pytest.raises(BadFileError, match="the limits of users cannot be used"):
            alice.submit(fan(2))
        administrator.submit(fan(2))
        (finding,) = administrator.info().findings
        assert "the limits of users cannot be used" in finding


def test_two_requests_do_not_both_get_the_last_place(manager: FakeManager, tmp_path: Path) -> None:
    """A session that is being deployed counts, though the manager does not list it yet."""
    (tmp_path / "cluster.key.limits").write_text("[default]\nsessions = 1\n")
    begun, go_on = threading.Event(), threading.Event()
    submit = manager.submit

    def slow(graph: PhysicalGraph, options: SubmitQuery) -> SessionInfo:
        begun.set()
        assert go_on.wait(60)
        return submit(graph, options)

    manager.submit = slow  # type: ignore[method-assign]
    served = Service(manager, token=TOKEN, secret=SECRET, users=UserFiles.beside(tmp_path / "cluster.key"))
    served.start()
    with closing(served), Client(served.url, secret=_user("alice")) as alice, ThreadPoolExecutor(1) as pool:
        first = pool.submit(alice.submit, fan(2))
        assert begun.wait(60)
        with pytest.raises(QuotaError, match="user alice has 1 running session, and may have 1"):
            alice.submit(fan(2))
        go_on.set()
        assert first.result(60).user == "alice"


def _user(name: str) -> UserKey:
    return derive_user_key(SECRET, name, 1)


@pytest.mark.slow
def test_a_node_knows_the_user_of_a_session_from_the_island_only(tmp_path: Path) -> None:
    """The user travels with the deployment, which users cannot send; the node keeps it over a restart."""
    with ExitStack() as stack:
        _, below, above = _node_and_island(stack, tmp_path)
        alice = stack.enter_context(Client(above.url, secret=_user("alice")))
        bob = stack.enter_context(Client(below.url, secret=_user("bob")))
        alice.submit(fan(2), SubmitQuery(session="hers"))
        for _ in alice.events("hers"):
            pass

        assert [row.user for row in (*alice.sessions(), *bob.sessions())] == ["alice", "alice"]
        with pytest.raises(NotOwnerError, match="session 'hers' is of user alice"):
            bob.delete("hers")
        with pytest.raises(HttpError, match="the key of user bob is not enough for PUT"):
            bob.prepare(_Deployment(), seconds=1.0)

    with ExitStack() as stack:
        node, _, above = _node_and_island(stack, tmp_path)
        alice = stack.enter_context(Client(above.url, secret=_user("alice")))
        assert node.session("hers").status == "FINISHED"
        assert {client.session("hers").user for client in (node, alice)} == {"alice"}
        with Client(above.url, secret=_user("bob")) as other, pytest.raises(NotOwnerError, match="is of user alice"):
            other.delete("hers")
        alice.delete("hers")


@pytest.mark.slow
def test_only_its_user_cancels_a_session_that_is_being_deployed(tmp_path: Path) -> None:
    """The island, which does not list it yet, and the node know its user; then nothing of it is left."""
    with ExitStack() as stack:
        node, below, above = _node_and_island(stack, tmp_path)
        begun, go_on = threading.Event(), threading.Event()
        prepare = node.prepare

        def slow(deployment: Deployment, *, seconds: float) -> None:
            begun.set()
            assert go_on.wait(60)
            prepare(deployment, seconds=seconds)

        node.prepare = slow  # type: ignore[method-assign]
        stack.callback(go_on.set)
        alice = stack.enter_context(Client(above.url, secret=_user("alice")))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        submitted = pool.submit(alice.submit, fan(2), SubmitQuery(session="hers"))
        assert begun.wait(60)
        for url in (above.url, below.url):
            with Client(url, secret=_user("bob")) as bob, pytest.raises(NotOwnerError, match="is of user alice"):
                bob.cancel("hers", "", 1.0)
        with Client(above.url, secret=_user("alice")) as other:
            assert other.cancel("hers", "", 1.0).status == "CANCELLED"
        go_on.set()
        with pytest.raises(GoneError, match="cancelled while it was deployed"):
            submitted.result(60)
        assert node.sessions() == ()


def _node_and_island(stack: ExitStack, tmp_path: Path) -> tuple[NodeManager, Service, Service]:
    """Return a node, its server, and that of an island above it."""

    def served(manager: Manager) -> Service:
        users = UserFiles.beside(tmp_path / "cluster.key")
        return stack.enter_context(closing(Service(manager, token=TOKEN, secret=SECRET, users=users)))

    root = tmp_path / "n1"
    node = stack.enter_context(closing(NodeManager("n1", root=root, runner="threads", workers=1, in_place=False)))
    below = served(node)
    node.set_url(below.url)
    below.start()
    island = stack.enter_context(
        closing(Composite("i1", "island", children=[below.url], connect=lambda url: Client(url, secret=SECRET)))
    )
    above = served(island)
    island.set_url(above.url)
    island.open()
    above.start()
    return node, below, above


class _Deployment:
    """What a user sends in place of a deployment."""

    session = "hers"

    def buffers(self) -> list[bytes]:
        return [b"user bob"]


@pytest.mark.slow
def test_a_browser_that_a_user_signs_in_reads_only(manager: FakeManager, tmp_path: Path) -> None:
    """Its ticket gives no page key, with which forms change something."""
    served = Service(manager, token=TOKEN, secret=SECRET, users=UserFiles.beside(tmp_path / "cluster.key"))
    served.start()
    try:
        ticket = request_ticket(served.url, secret=_user("alice"))
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        body = json.dumps({"ticket": ticket})
        connection.request("POST", "/login", body=body, headers={"Content-Type": "application/json"})
        key = json.loads(connection.getresponse().read())["key"]
        connection.close()
    finally:
        served.close()

    assert key == read_key(TOKEN)


@pytest.mark.parametrize("secret", [None, b"x" * 40])
def test_other_requests_are_refused(service: Service, secret: bytes | None) -> None:
    """Without a credential, or signed with another key, they get 401."""
    with Client(service.url, secret=secret) as client, pytest.raises(HttpError, match=r"signature|token") as refused:
        client.info()
    assert refused.value.status == 401


@pytest.mark.parametrize("path", ["/api/v1/sessions", "/", "/metrics", "/api/sessions"])
def test_all_parts_need_the_token(service: Service, path: str) -> None:
    """Our API, the pages, the metrics and DALiuGE's paths answer 200 with the token and 401 without."""
    assert fetch(service, path, Authorization=f"Bearer {TOKEN}")[0] == 200
    assert fetch(service, path)[0] == 401


@pytest.mark.parametrize("path", ["/login", "/ready"])
def test_login_and_readiness_need_no_token(service: Service, path: str) -> None:
    """They answer 200 without a credential."""
    assert fetch(service, path)[0] == 200


def test_the_openapi_document_is_served(service: Service) -> None:
    """It has the paths of the API."""
    status, body = fetch(service, "/openapi.json", Authorization=f"Bearer {TOKEN}")

    assert status == 200
    assert "/api/v1/sessions/{session}" in json.loads(body)["paths"]


def test_the_name_of_another_host_is_refused(service: Service) -> None:
    """A request with another Host is refused even with the token, against DNS rebinding."""
    status, _ = fetch(service, "/api/v1/info", Host="evil.example:80", Authorization=f"Bearer {TOKEN}")

    assert status == 421


def test_without_a_token_only_loopback_is_served(manager: FakeManager) -> None:
    """A server without a token cannot listen on an address that other hosts can reach."""
    for host in ("0.0.0.0", "::", "192.0.2.1", socket.gethostname() + ".example"):  # noqa: S104 - it is refused
        with pytest.raises(UsageError, match="loopback"):
            Service(manager, host=host, token=None)


def test_all_sockets_are_on_loopback_by_default(service: Service) -> None:
    """No socket of the process listens on an address that other hosts can reach."""
    mine = [
        connection for connection in psutil.Process().net_connections("inet") if connection.status == psutil.CONN_LISTEN
    ]

    assert service.port in [connection.laddr.port for connection in mine]
    assert [connection.laddr for connection in mine if not is_loopback(connection.laddr.ip)] == []


def test_a_server_on_all_addresses_answers_for_its_own_names_only() -> None:
    """The allowed hosts are the name and addresses of this host, and those given."""
    access = make_access_rules("0.0.0.0", token=TOKEN, secret=None, hosts=["proxy.example"])  # noqa: S104 - nothing listens

    assert {socket.gethostname().lower(), "127.0.0.1", "proxy.example"} <= access.hosts
    assert "0.0.0.0" not in access.hosts  # noqa: S104


def test_a_port_in_use_is_an_error(service: Service, manager: FakeManager) -> None:
    """The error names the port."""
    with pytest.raises(ConflictError, match=str(service.port)):
        Service(manager, port=service.port, token=TOKEN)


@pytest.mark.slow
def test_closing_frees_the_port_and_may_be_repeated(manager: FakeManager) -> None:
    """A closed server does not listen, started or not."""
    for begins in (True, False):
        service = Service(manager, token=TOKEN)
        if begins:
            service.start()
        service.close()
        service.close()
        with pytest.raises(ConnectionRefusedError, match="refused"):
            socket.create_connection(("127.0.0.1", service.port), timeout=60)


@pytest.mark.parametrize(("host", "url"), [("h", "http://h:1"), ("::1", "http://[::1]:1")])
def test_url_of_host_and_port(host: str, url: str) -> None:
    """An IPv6 address is in brackets."""
    assert url_of(host, 1) == url


# The cluster key on disk.


@pytest.fixture
def keys_path(tmp_path: Path) -> Path:
    """Where a key may be created: in a directory that does not exist."""
    return tmp_path / "config" / "cluster.key"


def test_a_stored_key_is_loaded(keys_path: Path) -> None:
    """`load` returns the key that `create` made."""
    key = create(keys_path)

    assert load(keys_path) == key


def test_only_the_owner_can_read_a_key(keys_path: Path) -> None:
    """Other users cannot read the file or the directory, with any umask."""
    before = os.umask(0)
    try:
        create(keys_path)
    finally:
        os.umask(before)

    assert stat.S_IMODE(keys_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(keys_path.parent.stat().st_mode) == 0o700


def test_a_key_is_never_overwritten(keys_path: Path) -> None:
    """A second `create` refuses and leaves the first key alone."""
    key = create(keys_path)
    with pytest.raises(ConflictError, match="there is a cluster key already"):
        create(keys_path)

    assert load(keys_path) == key


def test_a_key_that_has_no_room_leaves_nothing(small_disk: Path) -> None:
    """The error names the cause, and a later try succeeds: the beginning of the file is not in the way."""
    path = small_disk / "cluster.key"
    fill(small_disk / "filler")
    with pytest.raises(StorageError, match="the key cannot be stored: No space left on device"):
        create(path)
    (small_disk / "filler").unlink()

    assert create(path) == load(path)


def test_a_key_is_never_written_through_a_link(keys_path: Path, tmp_path: Path) -> None:
    """A symbolic link in the way is refused, not followed."""
    keys_path.parent.mkdir()
    keys_path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConflictError, match="cluster key"):
        create(keys_path)

    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
def test_a_key_that_others_can_read_is_refused(keys_path: Path, mode: int) -> None:
    """Loading a key with open permissions fails and says what to do."""
    create(keys_path)
    keys_path.chmod(mode)

    with pytest.raises(BadFileError, match="others can read the cluster key") as caught:
        load(keys_path)
    assert "chmod 600" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not a cluster key"),
        (b"public abc\nsecret def\n", "not a cluster key"),
        (b"\xff" * 5000, "not a cluster key"),
        (b"public " + b"0" * 40 + b"\nsecret " + b"1" * 40 + b"\n", "do not match"),
        (b"public " + b"0" * 40 + b"\nsecret " + b"\xff" * 40 + b"\n", "the secret is not a CURVE key"),
    ],
)
def test_files_that_are_not_keys_are_refused(keys_path: Path, content: bytes, problem: str) -> None:
    """The error names the problem."""
    keys_path.parent.mkdir()
    keys_path.write_bytes(content)
    keys_path.chmod(0o600)

    with pytest.raises(BadFileError, match=problem):
        load(keys_path)


def test_a_missing_key_has_a_hint(keys_path: Path) -> None:
    """The hint names the command that makes a key."""
    with pytest.raises(BadFileError, match="cannot be read") as caught:
        load(keys_path)

    assert "dropflow keys create" in caught.value.hint


def test_the_key_of_a_user_is_stored_and_loaded(keys_path: Path) -> None:
    """Only its owner can read the file; a manager, which needs the cluster key, refuses it."""
    cluster, path = create(keys_path), keys_path.with_name("alice.key")
    key = create_user(path, cluster, "alice", 1_790_000_000)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (load_any(path), load_any(keys_path)) == (key, cluster)
    assert key.secret.decode() not in repr(key) + fingerprint(key)
    with pytest.raises(BadFileError, match="this is the key of a user, not the cluster key"):
        load(path)
    with pytest.raises(ConflictError, match="there is a key already"):
        create_user(path, cluster, "alice", 1_790_000_001)
    path.chmod(0o640)
    with pytest.raises(BadFileError, match="others can read"):
        load_any(path)


def test_revoking_keeps_what_was_revoked(keys_path: Path) -> None:
    """Each user has one line, with the latest time; an unreadable file is not replaced."""
    create(keys_path)
    path = UserFiles.beside(keys_path).revoked
    for name, until in (("alice", 5), ("bob", 7), ("alice", 3)):
        revoke(path, name, until)
    assert read_revoked(path) == {"alice": 5, "bob": 7}

    path.write_text("?\n")
    with pytest.raises(BadFileError, match="line 1 is not a revoked user"):
        revoke(path, "carol", 9)
    assert path.read_text() == "?\n"


def test_two_commands_revoke_users_one_after_the_other(keys_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is locked from its reading to its replacement, so that neither user is forgotten."""
    create(keys_path)
    path = UserFiles.beside(keys_path).revoked
    is_locked: list[bool] = []

    def read(where: Path) -> dict[str, int]:
        directory = os.open(where.parent, os.O_RDONLY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_locked.append(True)
        finally:
            os.close(directory)
        return read_revoked(where)

    monkeypatch.setattr("managers.keys.read_revoked", read)
    revoke(path, "alice", 5)

    assert is_locked == [True]


def test_the_secret_is_not_shown(keys_path: Path) -> None:
    """Neither `repr` nor the fingerprint contains the secret, and different keys have different fingerprints."""
    key, other = create(keys_path), create(keys_path.with_name("other.key"))

    assert key.secret.decode() not in repr(key) + str(key) + key.fingerprint
    assert key.fingerprint != other.fingerprint
    assert key.fingerprint == ClusterKey(key.public, b"").fingerprint
