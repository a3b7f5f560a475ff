"""DALiuGE's paths: the answers that its tools expect, and errors."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.translator.web.served import COOKIE, LINKED, TOKEN, Served
from translator.web.routes import STREAMS


def _drops(reply: Any) -> list[dict[str, Any]]:
    assert reply.status == 200, reply.text
    found: list[dict[str, Any]] = reply.json()
    assert found.pop() == {}
    return found


@pytest.mark.slow
def test_unroll_returns_the_list_of_drops(served: Served, nested: Path) -> None:
    """The drops have the prefix of the request and no node; the last element is a reproducibility record."""
    reply = served.ask("POST", "/unroll", {"lg_content": nested.read_text(), "oid_prefix": "mine"})
    drops = _drops(reply)

    assert len(drops) == served.service.all()[0].parts * 67
    assert {drop["oid"].split("_")[0] for drop in drops} == {"mine"}
    assert not any("node" in drop for drop in drops)


@pytest.mark.slow
def test_a_graph_is_translated_in_three_calls(served: Served, nested: Path) -> None:
    """Unroll, partition and map each take the answer of the call before."""
    unrolled = served.ask("POST", "/unroll", {"lg_content": nested.read_text()}).text
    parted = served.ask("POST", "/partition", {"pgt_content": unrolled, "num_partitions": "3", "algorithm": "metis"})
    hosts = "island,alpha,beta,gamma"
    mapped = _drops(served.ask("POST", "/map", {"pgt_content": parted.text, "nodes": hosts}))

    assert {(drop["node"], drop["island"]) for drop in _drops(parted)} == {(f"#{n}", "#0") for n in (1, 2, 3)}
    assert {(drop["node"], drop["island"]) for drop in mapped} == {(n, "island") for n in ("alpha", "beta", "gamma")}
    assert {drop["oid"] for drop in mapped} == {drop["oid"] for drop in json.loads(unrolled)[:-1]}


def test_waiting_requests_leave_threads_for_others(served: Served, hello: Path) -> None:
    """Pages are answered while requests wait for translations; one request too many gets 503."""
    form = {"lg_content": hello.read_text()}
    with ExitStack() as waiting:
        for _ in range(STREAMS):
            waiting.enter_context(served.streams.slot())
        late = served.ask("POST", "/unroll", form)
        page = served.ask("GET", "/")

    assert (late.status, late.headers["Retry-After"], page.status) == (503, "5", 200)
    assert served.ask("POST", "/unroll", form).status == 200


def test_unroll_and_partition(served: Served, nested: Path) -> None:
    """The parts are spread over the number of islands in the request."""
    form = {"lg_content": nested.read_text(), "num_partitions": "4", "num_islands": "2", "algo_params": "{}"}
    drops = _drops(served.ask("POST", "/unroll_and_partition", form))

    assert {(drop["node"], drop["island"]) for drop in drops} == {
        ("#2", "#0"),
        ("#3", "#0"),
        ("#4", "#1"),
        ("#5", "#1"),
    }


def test_placeholders_are_filled(served: Served) -> None:
    """A placeholder that is a whole value keeps its type; dots name nested parameters; other tildes stay."""
    graph = {"a": "~x", "b": "~{y.z} and ~x", "c": ["~/home", "~unknown"], "~x": 1}
    form = {"lg_content": json.dumps(graph), "parameters": json.dumps({"x": 4, "y": {"z": '"quoted"'}})}
    reply = served.ask("POST", "/lg_fill", form)

    assert reply.json() == {"a": 4, "b": '"quoted" and 4', "c": ["~/home", "~unknown"], "~x": 1}


@pytest.mark.slow
def test_gen_pg_names_the_nodes(served: Served, nested: Path) -> None:
    """The nodes are those of a known manager, or placeholders."""
    identity = str(served.translate(nested, parts="3")["id"])
    placed = _drops(served.ask("GET", f"/gen_pg?pgt_id={identity}&dlg_mgr_url={served.manager_url}", token=True))
    counted = _drops(served.ask("GET", f"/gen_pg?pgt_id={identity}&tpl_nodes_len=2", token=True))

    assert {drop["node"] for drop in placed} == {"node-1", "node-2", "node-3"}
    assert {drop["node"] for drop in counted} == {"#0", "#1"}


@pytest.mark.slow
def test_gen_pg_deploys_with_the_token(served: Served, nested: Path) -> None:
    """It redirects to the page of the session, as DALiuGE does, and deploys to known managers only."""
    identity = str(served.translate(nested)["id"])
    path = f"/gen_pg?pgt_id={identity}&dlg_mgr_deploy=deploy"
    reply = served.ask("GET", f"{path}&dlg_mgr_url={served.manager_url}", token=True)
    (session,) = served.manager.sessions()

    assert (reply.status, reply.headers["Location"]) == (307, f"{served.manager_url}/sessions/{session.session}")
    assert served.ask("GET", f"{path}&dlg_mgr_host=evil.example", token=True).status == 400
    assert served.ask("GET", path, token=True).status == 400
    assert len(served.manager.sessions()) == 1


def test_gen_pg_redirects_browsers_to_the_form(served: Served, nested: Path) -> None:
    """The manager of the request is selected in the form, and nothing is deployed before the form is posted."""
    identity = str(served.translate(nested)["id"])
    path = f"/gen_pg?pgt_id={identity}&dlg_mgr_deploy=deploy&dlg_mgr_url={served.manager_url}"
    reply = served.ask("GET", path, Cookie=COOKIE, Accept="text/html", **LINKED)
    page = served.ask("GET", reply.headers["Location"], Accept="text/html")
    unknown = served.ask("GET", f"{path}x", Cookie=COOKIE, Accept="text/html", **LINKED)

    assert (reply.status, served.manager.sessions()) == (303, ())
    assert reply.headers["Location"].startswith(f"/translations/{identity}?manager=")
    assert f"<option selected>{served.manager_url}</option>" in page.text
    assert "Deploy and watch" in page.text
    assert unknown.status == 400


@pytest.mark.parametrize("token", [TOKEN, None])
def test_gen_pg_needs_the_token_in_a_header(serve: Callable[..., Served], nested: Path, token: str | None) -> None:
    """GET without that deploys nothing, even if no token is needed, because pages of other sites can send it."""
    served = serve(token=token)
    identity = str(served.translate(nested)["id"])
    path = f"/gen_pg?pgt_id={identity}&dlg_mgr_deploy=deploy&dlg_mgr_url={served.manager_url}"
    refused = served.ask("GET", path, Cookie=COOKIE)
    words = refused.json()["error"]

    assert (refused.status, refused.headers["Allow"], served.manager.sessions()) == (405, "POST", ())
    assert "Authorization: Bearer TOKEN, or POST" in words["hint"]
    assert served.ask("POST", path, token=True).status == 303
    assert len(served.manager.sessions()) == 1


@pytest.mark.slow
def test_gen_pg_spec_returns_json_in_json(served: Served, nested: Path) -> None:
    """The answer has a text with the drops on the nodes of the request, and the ids of the roots."""
    identity = str(served.translate(nested, name='quo"ted\\.graph', parts="2")["id"])
    body = json.dumps({"pgt_id": identity, "manager_host": "boss", "node_list": ["alpha", "beta"]}).encode()
    text = served.ask("POST", "/gen_pg_spec", body).json()
    answer = json.loads(text)
    consumed = {
        oid if isinstance(oid, str) else next(iter(oid))
        for drop in answer["pg_spec"][:-1]
        for oid in (*drop.get("consumers", ()), *drop.get("outputs", ()))
    }

    assert {drop["node"] for drop in answer["pg_spec"][:-1]} == {"alpha", "beta"}
    assert {drop["island"] for drop in answer["pg_spec"][:-1]} == {"boss"}
    assert set(answer["root_uids"]) == {drop["oid"] for drop in answer["pg_spec"][:-1]} - consumed


def test_submission_methods(served: Served) -> None:
    """The server deploys if it knows a manager."""
    assert served.ask("GET", "/api/submission_method").json() == {"methods": ["SERVER"]}


@pytest.mark.parametrize(
    ("path", "form", "status", "words"),
    [
        ("/unroll", {}, 400, "no lg_content"),
        ("/unroll", {"lg_name": "x.graph"}, 404, "keeps no library"),
        ("/unroll", {"lg_content": "nonsense"}, 422, "not JSON"),
        ("/unroll", {"lg_content": "{}", "default_app": "a.b", "zero_run": "true"}, 422, "default application"),
        ("/partition", {"pgt_content": "[]", "num_partitions": "0"}, 422, "num_partitions is '0'"),
        ("/partition", {"pgt_content": "[]", "algo_params": "[["}, 422, "algo_params"),
        ("/partition", {"pgt_content": '[{"oid": "a", "type": "data"}, {}]', "algorithm": "magic"}, 422, "'magic'"),
        ("/map", {"pgt_content": "[]"}, 422, "no nodes are named"),
        ("/map", {"pgt_content": "[]", "nodes": "one"}, 422, "1 host cannot be 1 island and a node"),
        ("/lg_fill", {"lg_content": "{}", "parameters": "7"}, 400, "that is not JSON"),
        ("/lg_fill", {"lg_content": "[" * 201}, 400, "lg_content are nested 201 levels"),
        ("/lg_fill", {"lg_content": "{}", "parameters": "[" * 201}, 400, "parameters are nested 201 levels"),
    ],
)
def test_errors_have_both_formats(served: Served, path: str, form: dict[str, str], status: int, words: str) -> None:
    """An error has DALiuGE's fields, and our code, place and hint."""
    reply = served.ask("POST", path, form)
    body = reply.json()

    assert reply.status == status, reply.text
    assert {"type", "args", "error", "ok"} <= set(body)
    assert words in reply.text
