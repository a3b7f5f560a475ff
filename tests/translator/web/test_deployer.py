"""Deploying: the translator calls a real manager's routes, signed with the cluster key."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dropflow.api.auth import AccessRules
from dropflow.api.client import Client
from dropflow.api.openapi import Limits, StreamSlots
from dropflow.api.rest_server import RestServer
from dropflow.api.server import make_app
from dropflow.errors import DropflowError, LinkError
from dropflow.testing.fake_manager import FakeManager
from managers.routes.handlers import api_v1_routes
from tests.translator.web.served import EXAMPLES
from translator.web.records import DeployRequest, TranslateQuery
from translator.web.routes import make_translator

_SECRET = b"s" * 32


@pytest.mark.slow
@pytest.mark.parametrize(("secret", "accepted"), [(_SECRET, True), (b"x" * 32, False), (None, False)])
def test_deploying_needs_the_cluster_key(tmp_path: Path, secret: bytes | None, *, accepted: bool) -> None:
    """With the key, the manager has the session with the translated graph; without it, nothing is deployed."""
    manager, streams = FakeManager("boss", role="master", nodes=("a", "b")), StreamSlots(4)
    access = AccessRules(token="another", secret=_SECRET)  # noqa: S106 - no secret
    server = RestServer(make_app(api_v1_routes(manager, streams), access, Limits()), streams=streams, stream_limit=4)
    server.start()
    _, _, service = make_translator(tmp_path, managers=[server.url], access=access, secret=secret)
    try:
        info = service.submit((EXAMPLES / "nested-scatter-gather.graph").read_bytes(), TranslateQuery())
        service.get(info.id, seconds=60)
        request = DeployRequest(manager=server.url, session="s", spread=True)
        if accepted:
            assert service.deploy(info.id, request).url == f"{server.url}/sessions/s"
            with Client(server.url, secret=_SECRET) as client:
                assert client.session("s").drops == 67
        else:
            with pytest.raises(DropflowError, match=r"token|sign"):
                service.deploy(info.id, request)
            assert manager.sessions() == ()
    finally:
        service.close()
        server.close()


def test_an_absent_manager_is_a_link_error(tmp_path: Path) -> None:
    """The error names the address."""
    _, _, service = make_translator(tmp_path, managers=["http://127.0.0.1:9"], access=AccessRules(token=None))
    try:
        info = service.submit((EXAMPLES / "hello.graph").read_bytes(), TranslateQuery())
        service.get(info.id, seconds=60)
        with pytest.raises(LinkError, match=r"127\.0\.0\.1:9"):
            service.deploy(info.id, DeployRequest(manager="http://127.0.0.1:9"))
    finally:
        service.close()


@pytest.mark.slow
def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    """A translator that is killed leaves no worker process."""
    script = (
        "import sys\nfrom pathlib import Path\nfrom dropflow.api.auth import AccessRules\n"
        "from translator.web.routes import make_translator\nfrom translator.web.records import TranslateQuery\n"
        "_, _, service = make_translator(Path(sys.argv[1]), access=AccessRules(token=None))\n"
        "info = service.submit(Path(sys.argv[2]), TranslateQuery())\nprint('ready', flush=True)\n"
        "service.get(info.id, seconds=600)"
    )
    graph = tmp_path / "long.json"
    graph.write_bytes(b"[" + b'{"oid": "x"},' * 300_000)
    arguments = [sys.executable, "-c", script, str(tmp_path / "root"), str(graph)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        workers: list[psutil.Process] = []
        while not workers:
            workers = psutil.Process(parent.pid).children()
        parent.kill()
    _, alive = psutil.wait_procs(workers, timeout=60)

    assert alive == []
