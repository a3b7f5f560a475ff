"""The paths of the translator's own API."""

import json
import threading
from pathlib import Path

import pytest

from dropflow.api.error_body import from_body
from dropflow.errors import BadGraphError
from dropflow.graph.codec import parse
from tests.translator.web.served import Served


@pytest.mark.slow
def test_the_life_of_a_translation(served: Served, nested: Path) -> None:
    """A translation is created, listed, downloaded, partitioned again, deployed and deleted."""
    info = served.translate(nested, name="nested.graph", parts="2")
    one = f"/api/v1/translations/{info['id']}"
    listed = served.ask("GET", "/api/v1/translations", token=True).json()["translations"]
    graph = parse(served.ask("GET", f"{one}/graph.dfg", token=True).body)
    again = served.ask("POST", f"{one}/partition", b'{"algorithm": "blocks", "parts": 3}', token=True)
    over = served.ask("GET", f"/api/v1/translations/{again.json()['id']}?seconds=60", token=True).json()
    order = json.dumps({"manager": served.manager_url, "session": "s1"}).encode()
    deployed = served.ask("POST", f"{one}/deploy", order, token=True)
    served.ask("DELETE", one, token=True)

    assert [found["id"] for found in listed] == [info["id"]]
    assert (graph.name, graph.drops, graph.parts) == ("nested", info["report"]["drops"], 2)
    assert over["report"]["measures"]["parts"] == 3
    assert (deployed.status, deployed.json()["url"]) == (201, f"{served.manager_url}/sessions/s1")
    assert served.ask("GET", one, token=True).status == 404


@pytest.mark.slow
def test_all_formats_are_accepted(served: Served, nested: Path) -> None:
    """A list of drops and a .dfg file give the same graph as the logical graph."""
    info = served.translate(nested, name="nested")
    one = f"/api/v1/translations/{info['id']}"
    listed = served.translate(served.ask("GET", f"{one}/pg.json", token=True).body)
    packed = served.translate(served.ask("GET", f"{one}/graph.dfg", token=True).body)

    assert [found["report"]["drops"] for found in (info, listed, packed)] == [info["report"]["drops"]] * 3
    assert packed["report"]["digest"] == info["report"]["digest"]


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


def test_an_unfinished_translation_has_no_graph_yet(served: Served, nested: Path) -> None:
    """Downloading the graph is a conflict, and the answer advises to wait."""
    setting = "settings=Rows.num_of_copies=2000"
    info = served.ask("POST", f"/api/v1/translations?{setting}", nested.read_bytes(), token=True).json()
    reply = served.ask("GET", f"/api/v1/translations/{info['id']}/graph.dfg", token=True)

    assert reply.status in (200, 409)
    assert reply.status == 200 or "wait" in reply.text


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
