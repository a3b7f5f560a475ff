"""The paths of the translator's own API."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from dropflow.api.auth import AccessRules
from dropflow.api.bottle_app import make_app
from dropflow.api.client import Client
from dropflow.api.error_body import from_body
from dropflow.api.routes import Limits, StreamSlots
from dropflow.api.serving import RestServer
from dropflow.errors import BadGraphError, DropflowError, LinkError
from dropflow.graph.codec import parse
from managers.routes.handlers import api_v1_routes
from tests.fake_manager import FakeManager
from tests.lazy_module import LazyModule
from tests.translator.web.served import EXAMPLES, Served
from translator.web.records import DeployRequest, TranslateQuery, TranslatorLimits
from translator.web.routes import make_translator

schemathesis = LazyModule("schemathesis")


@pytest.mark.slow
def test_the_life_of_a_translation(served: Served, nested: Path) -> None:
    """A translation is created, listed, downloaded, partitioned again, deployed and deleted."""
    info = served.translate(nested, name="nested.graph", parts="2")
    address = f"/api/v1/translations/{info['id']}"
    listed = served.ask("GET", "/api/v1/translations", token=True).json()["translations"]
    graph = parse(served.ask("GET", f"{address}/graph.dfg", token=True).body)
    again = served.ask("POST", f"{address}/partition", b'{"algorithm": "blocks", "parts": 3}', token=True)
    over = served.ask("GET", f"/api/v1/translations/{again.json()['id']}?seconds=60", token=True).json()
    order = json.dumps({"manager": served.manager_url, "session": "s1"}).encode()
    deployed = served.ask("POST", f"{address}/deploy", order, token=True)
    served.ask("DELETE", address, token=True)

    assert [translation["id"] for translation in listed] == [info["id"]]
    assert (graph.name, graph.drops, graph.parts) == ("nested", info["report"]["drops"], 2)
    assert over["report"]["measures"]["parts"] == 3
    assert (deployed.status, deployed.json()["url"]) == (201, f"{served.manager_url}/sessions/s1")
    assert served.ask("GET", address, token=True).status == 404


@pytest.mark.slow
def test_all_formats_are_accepted(served: Served, nested: Path) -> None:
    """A list of drops and a .dfg file give the same graph as the logical graph."""
    info = served.translate(nested, name="nested")
    address = f"/api/v1/translations/{info['id']}"
    listed = served.translate(served.ask("GET", f"{address}/pg.json", token=True).body)
    packed = served.translate(served.ask("GET", f"{address}/graph.dfg", token=True).body)

    assert [translation["report"]["drops"] for translation in (info, listed, packed)] == [info["report"]["drops"]] * 3
    assert packed["report"]["digest"] == info["report"]["digest"]


@pytest.mark.slow
def test_a_refused_graph_is_a_bad_graph_error(served: Served) -> None:
    """The error has all problems, so that clients can raise it."""
    info = served.translate(b"nonsense", name="n")
    reply = served.ask("GET", f"/api/v1/translations/{info['id']}/graph.dfg", token=True)
    error = from_body(reply.status, reply.json())

    assert reply.status == 422
    assert isinstance(error, BadGraphError)
    assert [problem["code"] for problem in info["report"]["problems"]] == ["LG001"]


def test_options_are_checked_by_their_types(served: Served, hello: Path) -> None:
    """Unknown and invalid options are refused before a translation is created."""
    for query in ("parts=0", "parts=many", "imbalance=-1", "surprise=1", "seconds=1e9"):
        assert served.ask("POST", f"/api/v1/translations?{query}", hello.read_bytes(), token=True).status == 400
    assert served.service.all() == ()


@pytest.mark.slow
def test_an_unfinished_translation_has_no_graph_yet(served: Served, nested: Path) -> None:
    """Downloading the graph is a conflict, and the answer advises to wait."""
    setting = "settings=Rows.num_of_copies=2000"
    info = served.ask("POST", f"/api/v1/translations?{setting}", nested.read_bytes(), token=True).json()
    reply = served.ask("GET", f"/api/v1/translations/{info['id']}/graph.dfg", token=True)

    assert reply.status in (200, 409)
    assert reply.status == 200 or "wait" in reply.text


@pytest.mark.slow
def test_the_description_of_the_translator(served: Served) -> None:
    """Role and version need the token; liveness and the OpenAPI document do not."""
    assert served.ask("GET", "/api/v1/info", token=True).json()["role"] == "translator"
    assert served.ask("GET", "/api/v1/ready").json() == {"ok": True}
    paths = served.ask("GET", "/api/v1/openapi.json").json()["paths"]
    assert "post" in paths["/api/v1/translations"]
    assert "post" in paths["/gen_pgt"]


@pytest.mark.slow
def test_an_interrupted_download_frees_its_slot(served: Served, nested: Path) -> None:
    """After several downloads that were interrupted, the next one is served."""
    info = served.translate(nested, settings="Rows.num_of_copies=300\nCells.num_of_copies=40")
    for _ in range(5):
        chunks = served.service.export(info["id"])
        assert next(chunks).startswith(b"[")
        chunks.close()  # type: ignore[attr-defined]

    assert served.ask("GET", f"/translations/{info['id']}/pg.json").status == 200


@pytest.mark.slow
def test_other_requests_are_answered_while_a_graph_is_translated(served: Served, nested: Path) -> None:
    """Translations run in other processes than the server."""
    setting = "settings=Rows.num_of_copies%3D300%0ACells.num_of_copies%3D300"
    path = f"/api/v1/translations?{setting}&seconds=60"
    posted: list[int] = []
    thread = threading.Thread(
        target=lambda: posted.append(served.ask("POST", path, nested.read_bytes(), token=True).status)
    )
    thread.start()
    answered = 0
    while thread.is_alive():
        assert served.ask("GET", "/").status == 200
        answered += 1
    thread.join()

    assert posted == [202]
    assert answered > 10


# The translator conforms to its OpenAPI document for generated requests.


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_generated_request_breaks_the_server(serve: Callable[..., Served], hello: Path) -> None:
    """Every answer is one of the document, and none is a server error."""
    served = serve(TranslatorLimits(kept=20, seconds=20), token=None)
    identity = str(served.translate(hello)["id"])
    for result in schemathesis.openapi.from_url(f"{served.url}/openapi.json").get_all_operations():
        operation = result.ok()
        if operation.method.upper() != "DELETE" and not operation.path.endswith("/delete"):
            _try(operation, identity)


def _try(operation: Any, identity: str) -> None:
    @given(case=operation.as_strategy())
    @settings(max_examples=3, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def one(case: Any) -> None:
        if "translation" in case.path_parameters:
            case.path_parameters["translation"] = identity
        answer = case.call()
        assert answer.status_code < 500 or answer.status_code == 503, f"{case.as_curl_command()}: {answer.text}"

    one()


# Deploying: the translator calls a real manager's routes, signed with the cluster key.


_SECRET = b"s" * 32


@pytest.mark.slow
@pytest.mark.parametrize(("secret", "accepted"), [(_SECRET, True), (b"x" * 32, False), (None, False)])
def test_deploying_needs_the_cluster_key(tmp_path: Path, secret: bytes | None, *, accepted: bool) -> None:
    """With the key, the manager has the session with the translated graph; without it, nothing is deployed."""
    manager, streams = FakeManager("boss", role="master", nodes=("a", "b")), StreamSlots(4)
    access = AccessRules(token="another", secret=_SECRET)
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


@pytest.mark.slow
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
