"""DALiuGE's paths: the answers that its tools expect, and errors."""

import contextlib
import json
import urllib.parse
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import HttpError
from dropflow.failure import Severity
from tests.translator.web.served import COOKIE, EAGLE, LINKED, TOKEN, Served
from translator.options import DEFAULT_ALGORITHM
from translator.web import forms
from translator.web.daliuge import imbalance_of, read_eagle, steering
from translator.web.forms import Form, decode_percent, read_form
from translator.web.records import TranslatorLimits
from translator.web.routes import STREAMS


def _drops(reply: Any) -> list[dict[str, Any]]:
    assert reply.status == 200, reply.text
    drops: list[dict[str, Any]] = reply.json()
    assert drops.pop() == {}
    return drops


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


@pytest.mark.slow
@pytest.mark.parametrize(("numbers", "names"), [((1, 2), ["alpha", "beta"]), ((0, 5), ["alpha", "beta"])])
def test_as_many_nodes_as_drops_are_mapped(
    served: Served, hello: Path, numbers: tuple[int, ...], names: list[str]
) -> None:
    """Placeholders of nodes are mapped in their order, after those of islands, also if a plan left some empty."""
    drops = _drops(served.ask("POST", "/unroll", {"lg_content": hello.read_text()}))
    for drop, number in zip(drops, numbers, strict=True):
        drop |= {"node": f"#{number}", "island": "#0"}
    form = {"pgt_content": json.dumps([*drops, {}]), "nodes": "island,alpha,beta"}

    assert [drop["node"] for drop in _drops(served.ask("POST", "/map", form))] == names


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("graph", "value"),
    [("~x " * 300, "v" * 300), ("~x " * 30, "{x}" * 30), (["~x"] * 300, ["v" * 300])],
    ids=["in a text", "in a value", "whole values"],
)
def test_a_small_form_gets_no_huge_answer(serve: Callable[..., Served], graph: Any, value: Any) -> None:
    """Values in place of placeholders have at most as many bytes as a form may have, as no login is needed."""
    served = serve(TranslatorLimits(body=20_000))
    form = {"lg_content": json.dumps(graph), "parameters": json.dumps({"x": value})}
    reply = served.ask("POST", "/lg_fill", form)

    assert reply.status == 413, reply.text[:200]
    assert "more than 20,000 bytes" in reply.text


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


@pytest.mark.slow
def test_gen_pg_redirects_browsers_to_the_form(served: Served, nested: Path) -> None:
    """The manager of the request is selected in the form, and nothing is deployed before the form is posted."""
    identity = str(served.translate(nested)["id"])
    path = f"/gen_pg?pgt_id={identity}&dlg_mgr_deploy=deploy&dlg_mgr_url={served.manager_url}"
    reply = served.ask("GET", path, Cookie=COOKIE, Accept="text/html", **LINKED)
    page = served.ask("GET", reply.headers["Location"], Accept="text/html")
    unknown = served.ask("GET", f"{path}x", Cookie=COOKIE, Accept="text/html", **LINKED)

    assert (reply.status, served.manager.sessions()) == (303, ())
    assert reply.headers["Location"].startswith(f"/translations/{identity}?manager=")
    assert f'<option value="{served.manager_url}" selected>' in page.text
    assert "Deploy and watch" in page.text
    assert unknown.status == 400


@pytest.mark.slow
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


# Reading the fields of EAGLE's form.


def _form(**fields: str) -> Form:
    given = {"json_data": "{}", "lg_name": "dir/hello.graph", **EAGLE, **fields}
    return Form({name: value.encode() for name, value in given.items()})


def test_the_defaults_of_eagle_have_no_problems() -> None:
    """They mean one part by metis, with an imbalance of 0.1 %."""
    source, query, notes = read_eagle(_form())

    assert (source, query.algorithm, query.parts, query.imbalance) == (b"{}", "metis", 1, 0.1)
    assert notes == ()


@pytest.mark.parametrize(
    ("posted", "read", "places"),
    [
        ('{"a": "45°"}'.encode(), '{"a": "45°"}', []),
        ('{"a": "45°"}'.encode("cp1252"), '{"a": "45°"}', ["json_data"]),
    ],
)
def test_a_graph_from_a_page_without_a_charset_is_read(posted: bytes, read: str, places: list[str]) -> None:
    """A browser posts the form of such a page in Windows-1252. That is noted."""
    source, _, notes = read_eagle(Form({**_form().fields, "json_data": posted}))

    assert (source.decode(), [note.where for note in notes]) == (read, places)


@pytest.mark.parametrize(
    ("test", "rehearsal"), [("true", True), ("True", True), ("1", True), ("false", False), ("", False), ("0", False)]
)
def test_the_test_button_asks_for_a_rehearsal(test: str, rehearsal: bool) -> None:  # noqa: FBT001 - a parameter
    """EAGLE's "Test PGT" sends test=true; other spellings are accepted too."""
    _, query, notes = read_eagle(_form(test=test))

    assert (query.rehearsal, notes) == (rehearsal, ())


@pytest.mark.parametrize(("balance", "imbalance"), [("100", 0.1), ("90", 1.1), ("0", 10.1), ("101", 0.1), ("", 1.1)])
def test_the_balance_means_what_it_means_in_daliuge(balance: str, imbalance: float) -> None:
    """METIS may exceed the mean load by max(1, 101 - p) thousandths."""
    assert read_eagle(_form(max_load_imb=balance))[1].imbalance == pytest.approx(imbalance)


def test_the_largest_balance_is_limited() -> None:
    """In `algo_params` it may be any number, also one that no float holds."""
    assert [imbalance_of(balance) for balance in (-(10**400), -9899, -9898, 10**400)] == [1000.0, 1000.0, 999.9, 0.1]


def test_all_bad_numbers_are_problems() -> None:
    """Each invalid number is a problem with the name of its field."""
    _, _, notes = read_eagle(_form(num_par="many", max_load_imb="1e9"))

    assert [(note.code, note.severity, note.where) for note in notes] == [
        ("PT002", Severity.ERROR, "num_par"),
        ("PT002", Severity.ERROR, "max_load_imb"),
    ]


def test_fields_without_effect_are_mentioned() -> None:
    """A field that differs from its default and has no effect is named in a note."""
    _, _, notes = read_eagle(_form(par_label="Group", rmode="4", surprise="x", test="maybe"))

    assert {note.where for note in notes} == {"par_label", "rmode", "surprise", "test"}
    assert {note.severity for note in notes} == {Severity.INFO}


def test_the_parameters_of_daliuge_steer_the_plan() -> None:
    """Each of DALiuGE's parameters becomes an option, and bad values are problems."""
    fields = {
        "algo": "min_num_parts",
        "num_islands": "4",
        "max_cpu": "6",
        "max_mem": "2000",
        "deadline": "300",
        "time_greedy": "80",
        "ptype": "1",
        "min_goal": "1",
        "swarm_size": "10",
        "topk": "20",
    }
    _, query, notes = read_eagle(_form(**fields))

    assert notes == ()
    assert (query.algorithm, query.islands, query.dop, query.memory) == ("min_num_parts", 4, 6, 2000)
    assert (query.deadline, query.greediness) == (300, 80)
    assert (query.method, query.goal, query.steps) == ("recursive", "moved", 200)
    _, query, notes = read_eagle(_form(deadline="soon", max_mem="1000", min_goal="7"))
    assert query.memory == 0
    assert {(note.code, note.where) for note in notes} == {("PT002", "deadline"), ("PT002", "min_goal")}


def test_max_cpu_is_a_limit_of_each_part() -> None:
    """As in DALiuGE: parts of an island together may use so many times as much."""
    assert steering({"max_cpu": 8, "num_islands": 2}, [], parts=6)["dop"] == 24


def test_an_algorithm_that_eagle_does_not_know_is_replaced() -> None:
    """EAGLE sends ``agl-1`` for an unknown algorithm; a note names the replacement."""
    _, query, notes = read_eagle(_form(algo="agl-1"))

    assert query.algorithm == DEFAULT_ALGORITHM
    assert "agl-1" in notes[0].text


def test_a_form_without_a_graph_is_refused() -> None:
    """The refusal names all missing fields."""
    with pytest.raises(HttpError, match="no json_data and lg_name") as refused:
        read_eagle(Form({}))

    assert refused.value.status == 422


def test_a_graph_that_is_posted_as_a_file_has_the_name_of_the_file() -> None:
    """A form may post the file itself."""
    posted = Form({"json_data": b"{}"}, {"json_data": "imaging.graph"})
    source, query, notes = read_eagle(posted)

    assert (source, query.name, notes) == (b"{}", "imaging.graph", ())


# Reading posted forms.


_URLENCODED = "application/x-www-form-urlencoded"
_TRICKY = st.lists(st.sampled_from([b"%", b"%4", b"%41", b"%c3%A9", b"+", b"a", b"=", b"\xff", b"%%", b"%zz"])).map(
    b"".join
)


@given(_TRICKY | st.binary(max_size=200), st.integers(min_value=3, max_value=9))
def test_percent_codes_are_decoded_as_by_urllib(data: bytes, piece: int) -> None:
    """The result does not depend on the pieces in which the decoder works."""
    patch = pytest.MonkeyPatch()
    with patch.context() as changed:
        changed.setattr(forms, "_PIECE", piece)
        assert decode_percent(data) == urllib.parse.unquote_to_bytes(data.replace(b"+", b" "))


@pytest.mark.slow
@given(st.dictionaries(st.text(min_size=1, max_size=10), st.text(max_size=50), max_size=5))
def test_an_urlencoded_form_is_read(fields: dict[str, str]) -> None:
    """The fields are those that were encoded."""
    body = urllib.parse.urlencode(fields).encode()

    assert read_form(body, _URLENCODED).fields == {name: value.encode() for name, value in fields.items()}


def _multipart(parts: list[tuple[str, bytes]], boundary: bytes = b"XyZ") -> bytes:
    lines = [b"--%b\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n" % (boundary, h.encode(), c) for h, c in parts]
    return b"".join(lines) + b"--" + boundary + b"--\r\n"


@given(st.lists(st.binary(max_size=100), max_size=6))
def test_uploads_arrive_byte_for_byte(contents: list[bytes]) -> None:
    """A part may have any bytes, also line ends and dashes."""
    boundary = b"no-content-has-this"
    body = _multipart([(f'name="f{n}"; filename="a\u00e9{n}.graph"', c) for n, c in enumerate(contents)], boundary)
    form = read_form(body, f'multipart/form-data; boundary="{boundary.decode()}"')

    assert list(form.fields.values()) == contents
    assert [form.files[f"f{n}"] for n in range(len(contents))] == [f"a\u00e9{n}.graph" for n in range(len(contents))]


@given(st.binary(max_size=300), st.sampled_from([b"", b"--XyZ", b"--XyZ\r\n", b"\r\n--XyZ\r\nContent-Disposition: x"]))
def test_garbage_is_read_or_refused(data: bytes, head: bytes) -> None:
    """Random bytes are a form or an HttpError."""
    for kind in (_URLENCODED, "multipart/form-data; boundary=XyZ"):
        with contextlib.suppress(HttpError):
            assert isinstance(read_form(head + data, kind), Form)


@pytest.mark.parametrize(
    ("body", "kind", "status", "words"),
    [
        (b"a=1", "application/json", 415, "is not a form"),
        (b"a=1", "", 415, "is not a form"),
        (b"a=1&a=2", _URLENCODED, 400, "'a' is given twice"),
        (b"&".join(b"f%d=1" % n for n in range(500)), _URLENCODED, 400, "more than 400 fields"),
        (b"x", "multipart/form-data", 400, "names no boundary"),
        (
            b"--b\r\nContent-Disposition: form-data; name=x\r\n\r\ncut",
            "multipart/form-data; boundary=b",
            400,
            "cut off",
        ),
    ],
)
def test_bodies_that_are_not_forms_are_refused(body: bytes, kind: str, status: int, words: str) -> None:
    """The refusal has the reason."""
    with pytest.raises(HttpError, match=words) as refused:
        read_form(body, kind)

    assert refused.value.status == status
