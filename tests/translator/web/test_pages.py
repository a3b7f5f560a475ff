"""The pages of the translator over HTTP: EAGLE's post, uploads, hostile names, and access."""

import gzip
import html
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urljoin

import pytest

from dropflow import translate
from dropflow.api.auth import page_key
from dropflow.errors import WorldError
from dropflow.graph.codec import load, parse
from dropflow.graph.notes import repository_of
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from tests.cli import graph_documents
from tests.drawn_graphs import data, draw, function
from tests.translator.web.served import COOKIE, EAGLE, LINKED, TOKEN, Served
from translator.web.records import TranslatorLimits

pytestmark = pytest.mark.slow

_HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>.graph',
    "{{7*7}}% import os\n% end",
    "\u202egnp.\u0000\r\nSet-Cookie: a=b",
    "x" * 10_000,
    "'; DROP TABLE drops; --",
]


def _page_of(served: Served, graph: Path, **query: str) -> str:
    return str(served.translate(graph, **query)["id"])


def test_a_post_of_eagle_redirects_to_a_page(served: Served, hello: Path) -> None:
    """The page can be loaded again without posting again."""
    reply = served.eagle(hello)
    page = served.page(reply)

    assert reply.status == 303
    assert re.fullmatch(r"/translations/[0-9a-f]{32}", reply.headers["Location"])
    assert "Translated" in page
    assert "<bdi>hello</bdi></h1>" in page
    assert served.page(reply) == page


def test_the_test_button_of_eagle_gives_a_rehearsal(served: Served) -> None:
    """A graph with unknown components is refused, but translated for a test, and the page shows that."""
    nodes = [graph_documents.node("c", "DynlibApp", libpath="libx.so"), graph_documents.node("d", "Memory")]
    graph = graph_documents.document(nodes, [graph_documents.link("c", "d")])

    assert "DF106" in served.page(served.eagle(graph))
    page = served.page(served.eagle(graph, test="true"))
    assert "Translated" in page
    assert "this is a test run" in page
    assert "dlg.apps.simple.SleepApp" in page


def test_a_form_of_twenty_megabytes_is_translated(served: Served, hello: Path) -> None:
    """The whole graph of a large form arrives."""
    document = json.loads(hello.read_text())
    document["nodeDataArray"][0]["description"] = '"%&+ \u00e9' * 1_000_000
    text = json.dumps(document)
    reply = served.eagle(text.encode())
    page = served.page(reply)

    assert len(quote(text)) > 20_000_000
    assert "Translated" in page
    assert served.ask("GET", f"{reply.headers['Location']}/source").text == text


def test_a_file_is_uploaded(served: Served, nested: Path) -> None:
    """A multipart form with a file is translated under the name of the file."""
    boundary = b"a-boundary"
    fields = {"manager": served.manager_url.encode(), "text": b"", "name": b""}
    lines = [
        b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (boundary, n.encode(), v)
        for n, v in fields.items()
    ]
    lines.append(
        b'--%b\r\nContent-Disposition: form-data; name="graph"; filename="my graph.graph"\r\n'
        b"Content-Type: application/octet-stream\r\n\r\n%b\r\n--%b--\r\n" % (boundary, nested.read_bytes(), boundary)
    )
    kind = f"multipart/form-data; boundary={boundary.decode()}"
    page = served.page(served.ask("POST", "/translations", b"".join(lines), Content_Type=kind, Origin=served.url))

    assert "<bdi>my graph</bdi></h1>" in page
    assert "<dt>Drops</dt><dd>67" in page


@pytest.mark.parametrize("name", _HOSTILE)
def test_hostile_names_are_escaped(served: Served, hello: Path, name: str) -> None:
    """Names of graphs and nodes are shown as text, and are no markup, header or template."""
    document = json.loads(hello.read_text())
    for node in document["nodeDataArray"]:
        node["name"] = name
    reply = served.eagle(json.dumps(document).encode(), name=name)
    page = served.page(reply)
    download = served.ask("GET", f"{reply.headers['Location']}/graph.dfg")

    own = re.findall(r'<script(?: type="module")? src="../static/(\w+)\.js"></script>', page)
    assert (page.count("<script"), own) == (3, ["theme", "page_key", "kit"])
    assert "<img src=x" not in page
    assert name[:10] in html.unescape(page) or not name[:10].isprintable()
    assert "Set-Cookie" not in download.headers
    assert "\n" not in download.headers["Content-Disposition"]
    assert parse(download.body).drops > 0


@pytest.mark.parametrize("algorithm", ["made-up", "<b>"])
def test_unknown_algorithms_are_refused(served: Served, hello: Path, algorithm: str) -> None:
    """The page lists the algorithms and has a form to choose one."""
    page = served.page(served.eagle(hello, algo=algorithm))

    assert "Refused" in page
    assert "choose one of auto, metis" in page
    assert 'name="algorithm"' in page


def test_bad_numbers_and_problems_of_the_graph_are_on_one_page(served: Served) -> None:
    """The page has all that must be changed."""
    page = served.page(served.eagle(b'{"nodeDataArray": [], "linkDataArray": 7}', num_par="-3"))

    assert "num_par is &#039;-3&#039;" in page
    assert page.count('class="note error"') >= 2


def test_a_post_without_a_graph_is_refused(served: Served) -> None:
    """Browsers get a page, other clients JSON."""
    for accept, begin in (("text/html", "<!doctype html>"), ("*/*", "{")):
        reply = served.ask("POST", "/gen_pgt", {"lg_name": "x"}, Accept=accept)
        assert reply.status == 422
        assert reply.text.lower().startswith(begin)
        assert "no json_data" in reply.text


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"json_data=%00%ff&lg_name=%ff", b"&&&==", b"[" * 100_000])
def test_garbage_is_refused(served: Served, body: bytes) -> None:
    """Random bytes are refused and do not cause a server error."""
    reply = served.ask("POST", "/gen_pgt", body, Content_Type="application/x-www-form-urlencoded")

    assert reply.status in (303, 400, 422)
    if reply.status == 303:
        assert "Refused" in served.page(reply)


def test_forms_beyond_the_limit_are_refused(serve: Callable[..., Served], hello: Path) -> None:
    """The answer names the limit."""
    served = serve(TranslatorLimits(body=5000))
    reply = served.eagle(b" " * 10_000 + hello.read_bytes())

    assert reply.status == 413
    assert "5000 bytes" in reply.text


def test_the_page_of_an_unfinished_translation_reloads(serve: Callable[..., Served], nested: Path) -> None:
    """It reloads without a script until the translation is over."""
    served = serve(TranslatorLimits(workers=1))
    for _ in range(6):
        last = served.eagle(nested, name="nested.graph").headers["Location"]
    waiting = served.ask("GET", last).text
    page = served.page(served.eagle(nested))

    assert "Translating" in waiting or "Waiting" in waiting or "Translated" in waiting
    assert ('http-equiv="refresh"' in waiting) == ("Translated" not in waiting)
    assert 'http-equiv="refresh"' not in page


def test_the_page_has_its_data_as_json(served: Served, hello: Path) -> None:
    """The page links to the same data as JSON."""
    identity = _page_of(served, hello)
    page = served.ask("GET", f"/translations/{identity}").text
    twin = re.search(r'type="application/json" href="([^"]+)"', page)

    assert twin is not None
    assert served.ask("GET", urljoin(f"/translations/{identity}", twin[1])).json()["id"] == identity


def test_downloads_are_the_graph(served: Served, nested: Path) -> None:
    """The .dfg file and the list of drops have the same graph, and the source is the uploaded one."""
    address = f"/translations/{_page_of(served, nested, parts='2')}"
    graph = parse(served.ask("GET", f"{address}/graph.dfg").body)
    drops = served.ask("GET", f"{address}/pg.json").json()

    assert graph.parts == 2
    assert len(drops) - 1 == graph.drops
    assert {drop["node"] for drop in drops[:-1]} == {"#0", "#1"}
    assert served.ask("GET", f"{address}/source").body == nested.read_bytes()
    dot = served.ask("GET", f"{address}/graph.dot")
    assert (dot.body.count(b"subgraph"), dot.headers["Content-Type"]) == (2, "text/vnd.graphviz")
    assert served.ask("GET", f"{address}/graph.graphml").body.count(b"<node ") == graph.drops
    assert served.ask("GET", f"{address}/graph.csv").body.count(b"\r\n") == graph.drops + 1
    edges = served.ask("GET", f"{address}/graph.edges.csv")
    assert (edges.body.count(b"\r\n"), ".edges.csv" in edges.headers["Content-Disposition"]) == (graph.edges + 1, True)


def test_partitioning_again_has_a_new_page(served: Served, nested: Path) -> None:
    """The form of the page makes another translation, which keeps how EAGLE steers the plan."""
    steered = served.eagle(nested, deadline="90", max_mem="64")
    served.page(steered)
    address = steered.headers["Location"]
    form = {"algorithm": "blocks", "parts": "6", "imbalance": "2"}
    reply = served.ask("POST", f"{address}/again", form, Origin=served.url)

    assert reply.headers["Location"] != address
    assert "6 parts by blocks" in served.page(reply)
    options = served.service.options(reply.headers["Location"].rpartition("/")[2])
    assert (options.deadline, options.memory, options.dop) == (90.0, 64.0, 8)
    assert served.ask("POST", f"{address}/again", form | {"parts": "no"}, Origin=served.url).status == 400


def test_deploying_redirects_to_the_session(served: Served, nested: Path) -> None:
    """The security policy of the page permits the redirect to the page of the manager."""
    address = f"/translations/{_page_of(served, nested)}"
    form = {"manager": served.manager_url, "session": "mine", "spread": "yes"}
    reply = served.ask("POST", f"{address}/deploy", form, token=True, Origin=served.url)
    policy = served.ask("GET", address).headers["Content-Security-Policy"]

    assert (reply.status, reply.headers["Location"]) == (303, f"{served.manager_url}/sessions/mine")
    assert served.manager.session("mine").drops > 0
    assert f"form-action 'self' {served.manager_url};" in policy


@pytest.mark.parametrize(
    ("form", "status", "words"),
    [
        ({"manager": "http://evil.example"}, 400, "does not deploy to"),
        ({"session": "no/slashes"}, 400, "cannot be the name of a session"),
        ({"session": "broken"}, 503, "node-2 is on fire"),
    ],
)
def test_a_failed_deployment_is_shown_on_the_page(
    served: Served, hello: Path, form: dict[str, str], status: int, words: str
) -> None:
    """The page has the reason and still the form."""
    served.manager.refuse("submit", WorldError("node-2 is on fire", hint="put it out"))
    address = f"/translations/{_page_of(served, hello)}"
    reply = served.ask("POST", f"{address}/deploy", {"manager": served.manager_url, **form}, token=True)

    assert reply.status == status
    assert words in html.unescape(reply.text)
    assert "Deploy and watch" in reply.text


_BEARER = {"Authorization": f"Bearer {TOKEN}"}
_EVIL = {"Origin": "http://evil.example"}
_PORT = {"Origin": "http://127.0.0.1:9", "Sec-Fetch-Site": "same-site"}
_TAB = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
_REFUSED = [
    (_BEARER | _EVIL, 403),
    (_BEARER | {"Origin": "null"}, 403),
    (_BEARER | {"Sec-Fetch-Site": "cross-site"}, 403),
    (_BEARER | _PORT | _TAB, 403),
    (_BEARER | {"Host": "evil.example"}, 421),
    ({}, 401),
    ({"Authorization": "Bearer wrong"}, 401),
    ({"Cookie": "dropflow=x"}, 401),
    ({"Cookie": COOKIE}, 403),  # servers on other ports of this host get the cookie too
    ({"Cookie": COOKIE} | _PORT | _TAB, 403),
    ({"Cookie": COOKIE} | {"Sec-Fetch-Site": "same-site"} | _TAB, 403),
]
_CHANGES = [
    ("POST", "/translations/{}/deploy"),
    ("POST", "/translations/{}/delete"),
    ("POST", "/api/v1/translations/{}/deploy"),
    ("DELETE", "/api/v1/translations/{}"),
    ("POST", "/gen_pg?pgt_id={}&dlg_mgr_deploy=1&dlg_mgr_url="),
]


@pytest.mark.parametrize(("method", "path"), _CHANGES)
def test_changes_need_token_and_origin(served: Served, hello: Path, method: str, path: str) -> None:
    """Pages and API refuse a request without one of them, and nothing changes."""
    identity = _page_of(served, hello)
    path = path.format(identity) + (served.manager_url if path.endswith("=") else "")
    body: bytes | dict[str, str] = {"manager": served.manager_url}
    if "/api/" in path:
        body = json.dumps(body).encode()
    answers = [(headers, served.ask(method, path, body, **headers).status) for headers, _ in _REFUSED]

    assert answers == _REFUSED
    assert served.manager.sessions() == ()
    assert served.service.get(identity).is_over


def test_the_largest_form_is_accepted_without_a_token(serve: Callable[..., Served]) -> None:
    """A form that decompresses to the limit is read; one byte more is too large."""
    served = serve(TranslatorLimits(body=300_000))
    packed = {"Content-Type": "application/x-www-form-urlencoded", "Content-Encoding": "gzip"}
    start = b"lg_name=x&json_data="
    statuses = [
        served.ask("POST", "/gen_pgt", gzip.compress((start + b"x" * 300_000)[:size]), **packed).status
        for size in (300_000, 300_001)
    ]

    assert statuses == [303, 413]


def test_a_form_of_our_page_deploys_with_the_cookie_and_the_page_key(served: Served, hello: Path) -> None:
    """The script of the page adds the page key; without scripts, a user types the token."""
    address = f"/translations/{_page_of(served, hello)}/deploy"
    for session, proof in (("by-key", {"key": page_key(TOKEN)}), ("by-token", {"token": TOKEN})):
        form = {"manager": served.manager_url, "session": session, **proof}
        reply = served.ask("POST", address, form, Cookie=COOKIE, Origin=served.url)
        assert (reply.status, reply.headers["Location"]) == (303, f"{served.manager_url}/sessions/{session}")


def test_what_would_run_is_shown_before_deployment(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page has the applications that run and those that are reused, with the reason, and starts nothing.

    If that cannot be found out, it has the reason for that.
    """
    monkeypatch.setenv("DROPFLOW_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    nodes = [function("Make", "def Make(input=0):\n    return 7"), function("Show", "def Show(input):\n    return 'x'")]
    graph = draw(tmp_path / "two.graph", [*nodes, data("a"), data("text")], "Make > a > Show > text")
    local_run.run(translate(graph).graph, tmp_path / "run", RunOptions(runner="inline", reuse=True))
    identity = _page_of(served, graph, name="two.graph")
    address = f"/translations/{identity}/forecast"

    def ask(**form: str) -> tuple[int, str]:
        reply = served.ask("POST", address, {"manager": served.manager_url} | form, token=True, Origin=served.url)
        return reply.status, html.unescape(re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", reply.text)))

    same = ask()
    changed = ask(**{"value-Show.func_code": "def Show(input):\r\n    return 'y'"})
    refused = ask(manager="http://evil.example")
    monkeypatch.setenv("DROPFLOW_KEY", str(tmp_path / "none"))
    failed = ask()

    assert failed[0] == 400
    assert f"{tmp_path / 'none'}: the cluster key cannot be read" in failed[1]
    assert same[0] == changed[0] == 200
    assert "0 applications would run, 0 only if their inputs change, 2 reused" in same[1]
    assert "1 application would run, 0 only if their inputs change, 1 reused" in changed[1]
    assert "function `Show`: line 2 changed: return 'y'" in changed[1]
    assert "Its price, as measured in earlier runs" in changed[1]
    assert refused[0] == 400
    assert served.manager.sessions() == ()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_graph_of_a_repository_is_chosen_and_translated(
    served: Served, hello: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a login a page lists the graphs of a repository, and each is translated with a note of its commit."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    site = tmp_path / "site"
    (site / "graphs").mkdir(parents=True)
    shutil.copy(hello, site / "graphs" / "hello.graph")
    who = ["-c", "user.name=A", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "one"], ["update-server-info"]):
        subprocess.run(["git", "-C", site, *command], check=True, capture_output=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"git+http://127.0.0.1:{server.server_port}/.git"
    listed = served.ask("POST", "/repositories", {"address": address}, token=True)
    (chosen,) = re.findall(r'name="address" value="([^"]+)"', listed.text)
    reply = served.ask("POST", "/repositories", {"address": html.unescape(chosen)}, token=True)
    server.shutdown()
    server.server_close()
    info = served.service.result(reply.headers["Location"].rpartition("/")[2])
    note = repository_of(load(served.service.graph(info.id)))

    assert note is not None
    assert note.commit in chosen
    assert served.ask("POST", "/repositories", {"address": address}).status == 401
    assert served.ask("POST", "/repositories", {"address": f"git+file://{site}"}, token=True).status == 400
    assert served.ask("POST", "/repositories", {"address": "--upload-pack=x"}, token=True).status == 400


def test_nothing_is_changed_by_get(served: Served, hello: Path) -> None:
    """Every route that GET reaches is called with the cookie and with the query of DALiuGE's clients."""
    identity = _page_of(served, hello)
    described = served.ask("GET", "/openapi.json").json()["paths"]
    before = served.service.all()
    for path in [path for path, methods in described.items() if "get" in methods]:
        target = path.replace("{translation}", identity)
        query = f"?pgt_id={identity}&dlg_mgr_deploy=1&dlg_mgr_url={served.manager_url}" if path == "/gen_pg" else ""
        for more in ({}, LINKED | {"Accept": "text/html"}):
            reply = served.ask("GET", target + query, Cookie=COOKIE, **more)
            assert reply.status < 500, (path, reply.text)

    assert served.manager.sessions() == ()
    assert served.service.all() == before


@pytest.mark.parametrize("path", ["/", "/gen_pgt", "/login", "/translations", "/translations/{}", "/openapi.json"])
def test_links_on_other_sites_open_pages(served: Served, hello: Path, path: str) -> None:
    """A browser with the cookie gets the page, one without it the page or the login; scripts and frames are refused."""
    target = path.format(_page_of(served, hello))
    frame = LINKED | {"Sec-Fetch-Dest": "iframe"}
    script = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}
    known = served.ask("GET", target, Accept="text/html", Cookie=COOKIE, **LINKED)
    unknown = served.ask("GET", target, Accept="text/html", **LINKED)

    assert known.status in (200, 303)
    assert "login" not in known.headers.get("Location", "")
    assert unknown.status in (200, 303)
    assert served.ask("GET", target, Cookie=COOKIE, **frame).status == 403
    assert served.ask("GET", target, Cookie=COOKIE, **script).status == 403


def test_pages_cannot_be_framed(served: Served, hello: Path) -> None:
    """The security policy forbids frames, against clickjacking."""
    for path in ("/", f"/translations/{_page_of(served, hello)}"):
        assert "frame-ancestors 'none'" in served.ask("GET", path).headers["Content-Security-Policy"]


def test_routes_without_a_token(served: Served) -> None:
    """Without a token, only routes that read or translate answer; other sites may post EAGLE's form only."""
    described = served.ask("GET", "/openapi.json").json()["paths"]
    public = {
        (method.upper(), path)
        for path, methods in described.items()
        for method, operation in methods.items()
        if operation.get("security") == [] and method == "post"
    }

    assert public == {
        ("POST", path)
        for path in (
            "/gen_pgt",
            "/translations",
            "/translations/{translation}/again",
            "/unroll",
            "/partition",
            "/unroll_and_partition",
            "/map",
            "/lg_fill",
            "/gen_pg_spec",
        )
    }
    for path in ("/translations", "/unroll", "/map", "/lg_fill"):
        assert served.ask("POST", path, EAGLE, Origin="http://evil.example").status == 403
    assert served.ask("GET", "/translations").status == 401
    assert served.ask("GET", "/gen_pg?pgt_id=x&dlg_mgr_deploy=deploy").status == 401
    assert served.ask("POST", "/gen_pg?pgt_id=x").status == 401


def test_unknown_translations_are_not_found(served: Served) -> None:
    """Names with path separators are not found either."""
    for name in ("0" * 32, "..", "../../etc", "%00", "a/b", "x" * 5000):
        for what in ("", "/graph.dfg", "/pg.json", "/source", ".json"):
            assert served.ask("GET", f"/translations/{quote(name, safe='')}{what}").status in (400, 404)


def test_the_login_leads_back_to_the_translation(served: Served, hello: Path) -> None:
    """Posting the form of deployment without a cookie redirects to the login, and from there to the page."""
    address = f"/translations/{_page_of(served, hello)}"
    reply = served.ask("POST", f"{address}/deploy", {"manager": served.manager_url}, Accept="text/html")
    target = re.search(r"next=([^&]+)", reply.headers["Location"])

    assert reply.status == 303
    assert target is not None
    assert served.ask("GET", f"{address}/deploy").headers["Location"] == address
