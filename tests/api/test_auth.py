"""Which requests a server admits: host, origin, token, cookie, page key and signature."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from urllib.parse import urlencode

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dropflow.api.auth import (
    AccessControl,
    AccessRules,
    Proof,
    cookie_name,
    cookie_value,
    load_token,
    make_token,
    page_key,
    store_token,
)
from dropflow.api.bottle_app import make_app
from dropflow.api.http_client import ClientRequest, HttpTransport
from dropflow.api.routes import Limits, Request, Response, Route
from dropflow.api.signing import WINDOW, Signed, Signer, UserKey, Verifier, derive_user_key, digest, read_revoked
from dropflow.errors import BadFileError, BadParameterError, ClockSkewError, HttpError, StorageError, UsageError
from tests.http_server import ask, serve
from tests.virtual_clock import VirtualClock

TOKEN = "a-token"
SECRET = b"s" * 40
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")

HOSTS = {
    "127.0.0.1:1": True,
    "localhost": True,
    "[::1]:1": True,
    "known.example": True,
    "evil.example": False,
    "": False,
    "localhost:1, evil.example": False,
    "evil.example@localhost": False,
}
"""Values of Host, and whether the server accepts them."""

OWN, OTHER_PORT, EVIL, EAGLE = "http://{host}", "http://127.0.0.1:9", "https://evil.example", "https://eagle.example"

CALLERS = {
    # caller                     Origin      Site           Mode         Dest        may call: all, open or no
    "a program": (None, None, None, None, "all"),
    "our page, reading": (None, "same-origin", "cors", "empty", "all"),
    "our page, posting": (OWN, "same-origin", "navigate", "document", "all"),
    "our page, old browser": (OWN, None, None, None, "all"),
    "an allowed site": (EAGLE, "cross-site", "cors", "empty", "all"),
    "the address bar": (None, "none", "navigate", "document", "all"),
    "link on another site": (None, "cross-site", "navigate", "document", "open"),
    "link on another port": (None, "same-site", "navigate", "document", "open"),
    "form on another site": (EVIL, "cross-site", "navigate", "document", "open"),
    "form on another port": (OTHER_PORT, "same-site", "navigate", "document", "open"),
    "form, old browser": (EVIL, None, None, None, "no"),
    "sandbox": ("null", "cross-site", "navigate", "document", "open"),
    "script on another site": (EVIL, "cross-site", "cors", "empty", "no"),
    "script on another port": (OTHER_PORT, "same-site", "cors", "empty", "no"),
    "quiet script, other port": (None, "same-site", "no-cors", "empty", "no"),
    "image on another port": (None, "same-site", "no-cors", "image", "no"),
    "frame on another port": (None, "same-site", "navigate", "iframe", "no"),
    "frame on another site": (None, "cross-site", "navigate", "iframe", "no"),
    "another site, no mode": (None, "cross-site", None, None, "no"),
    "site given twice": (None, "same-origin, cross-site", "cors", "empty", "no"),
    "our origin, other site": (OWN, "same-site", "cors", "empty", "no"),
}
"""Headers of a request by its caller, and what that caller may do: all, open an address, or nothing."""

CREDENTIALS = {
    "none": "no",
    "bearer": "all",
    "wrong bearer": "no",
    "cookie": "read",
    "wrong cookie": "no",
    "token as cookie": "no",
    "cookie as bearer": "no",
    "signature": "all",
    "wrong signature": "no",
}
"""Credentials of a request, and what they permit: all, reading, or nothing."""


def _expected(method: str, host: str, caller: str, credential: str) -> int:
    """Return the status that the rules demand. They are in the order in which the server applies them."""
    reads, opened, good = method in ("GET", "HEAD"), CALLERS[caller][-1], CREDENTIALS[credential]
    if not HOSTS[host]:
        return 421
    if opened == "no" or (opened == "open" and not reads):
        return 403
    if method == "OPTIONS":
        return 204  # a browser asks before it may send a credential
    if good == "no":
        return 401
    if good == "read" and not reads:
        return 403
    return 200


def _routes() -> list[Route]:
    def echo(call: Request) -> Response:
        return Response(body=call.body or b"{}")

    verbs = [method for method in METHODS if method not in ("HEAD", "OPTIONS")]
    return [Route(method=method, path="/thing", handler=echo, summary="a thing") for method in verbs]


def _headers(host: str, caller: str, credential: str, method: str, signer: Signer | None = None) -> dict[str, str]:
    origin, site, mode, dest, _ = CALLERS[caller]
    sent = {
        "Origin": origin and origin.format(host=host),
        "Sec-Fetch-Site": site,
        "Sec-Fetch-Mode": mode,
        "Sec-Fetch-Dest": dest,
    }
    headers = {"Host": host} | {name: value for name, value in sent.items() if value is not None}
    cookie = cookie_name(host) if HOSTS[host] else "dropflow"
    match credential:
        case "bearer":
            headers["Authorization"] = f"Bearer {TOKEN}"
        case "wrong bearer":
            headers["Authorization"] = "Bearer wrong"
        case "cookie as bearer":
            headers["Authorization"] = f"Bearer {cookie_value(TOKEN)}"
        case "cookie":
            headers["Cookie"] = f"other=1; {cookie}={cookie_value(TOKEN)}"
        case "wrong cookie":
            headers["Cookie"] = f"{cookie}={page_key(TOKEN)}"
        case "token as cookie":
            headers["Cookie"] = f"{cookie}={TOKEN}"
        case "signature":
            headers["Authorization"] = (signer or Signer(SECRET)).sign(method, host, "/thing", digest((b"",)))
        case "wrong signature":
            headers["Authorization"] = Signer(b"x" * 40).sign(method, host, "/thing", digest((b"",)))
    return headers


def _answered(
    app: Callable[..., object], method: str, headers: Mapping[str, str]
) -> tuple[int, Sequence[tuple[str, str]]]:
    """Return the status and the headers with which the application answers these headers, without a server."""
    environ: dict[str, object] = {"REQUEST_METHOD": method, "PATH_INFO": "/thing", "wsgi.input": BytesIO()}
    environ |= {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
    found: list[tuple[int, Sequence[tuple[str, str]]]] = []
    app(environ, lambda status, sent, *_: found.append((int(status.split()[0]), sent)))
    return found[0]


def _status(app: Callable[..., object], method: str, headers: Mapping[str, str]) -> int:
    return _answered(app, method, headers)[0]


def _known_to(app: Callable[..., object]) -> Signer:
    """Return a signer that has learned for which manager to sign."""
    signer = Signer(SECRET)
    headers = _headers("localhost", "a program", "signature", "GET", signer)
    status, sent = _answered(app, "GET", headers)
    assert status == 401
    assert signer.learn(dict(sent)["Www-Authenticate"], headers["Authorization"])
    return signer


@pytest.mark.slow
def test_host_origin_and_credential_decide_for_every_method() -> None:
    """Every combination of method, host, caller and credential has the status that `_expected` returns."""
    access = AccessRules(token=TOKEN, secret=SECRET, hosts=frozenset({"known.example"}), origins=frozenset({EAGLE}))
    app = make_app(_routes(), access, Limits())
    signer, wrong = _known_to(app), []
    for case in itertools.product(METHODS, HOSTS, CALLERS, CREDENTIALS):
        method, host, caller, credential = case
        found = _status(app, method, _headers(host, caller, credential, method, signer))
        if found != _expected(*case):
            wrong.append((*case, found, _expected(*case)))

    assert wrong == []


@pytest.mark.slow
def test_the_server_answers_as_the_application() -> None:
    """Every caller and credential has the same status when the request goes through sockets."""
    access = AccessRules(token=TOKEN, secret=SECRET, origins=frozenset({EAGLE}))
    wrong = []
    with serve(_routes(), access=access) as server:
        signer = _introduced(server.url)
        for method, caller, credential in itertools.product(("GET", "POST"), CALLERS, CREDENTIALS):
            case = (method, "localhost", caller, credential)
            headers = _headers("localhost", caller, credential, method, signer)
            found = ask(server.url, method, "/thing", headers=headers).status
            if found != _expected(*case):
                wrong.append((*case, found))

    assert wrong == []


# Forms of pages of the same server, posted with the cookie.

FORMS = {
    "nothing": ({}, 403),
    "page key": ({"key": page_key("a-token")}, 200),
    "token": ({"token": " a-token "}, 200),
    "wrong key": ({"key": "x"}, 403),
    "cookie as key": ({"key": cookie_value("a-token")}, 403),
    "key as token": ({"token": page_key("a-token")}, 403),
    "token as key": ({"key": "a-token"}, 403),
    "empty": ({"key": "", "token": ""}, 403),
}
"""Fields of a form that is posted with the cookie, and the status."""


def _form_route(seen: list[bytes]) -> Route:
    def change(call: Request) -> None:
        seen.append(call.body)

    return Route(method="POST", path="/change", handler=change, summary="a form", form=True)


@pytest.mark.parametrize(("fields", "status"), FORMS.values(), ids=FORMS)
def test_a_form_with_the_cookie_needs_the_page_key(fields: dict[str, str], status: int) -> None:
    """A form with the cookie needs the page key or the token, because servers on other ports get the cookie too."""
    seen: list[bytes] = []
    headers = {"Cookie": f"dropflow={cookie_value(TOKEN)}", "Content-Type": "application/x-www-form-urlencoded"}
    with serve([_form_route(seen)], access=AccessRules(token=TOKEN)) as server:
        reply = ask(server.url, "POST", "/change", headers=headers, body=urlencode(fields).encode())

    assert reply.status == status
    assert len(seen) == (status == 200)


def test_a_browser_without_the_page_key_is_asked_for_the_token() -> None:
    """The page repeats all fields of the form except the credentials, with markup in them escaped."""
    seen: list[bytes] = []
    headers = {
        "Cookie": f"dropflow={cookie_value(TOKEN)}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "text/html",
    }
    with serve([_form_route(seen)], access=AccessRules(token=TOKEN)) as server:
        body = urlencode({"reason": '"><script>', "empty": "", "key": "old-key"}).encode()
        page = ask(server.url, "POST", '/change?x="y', headers=headers, body=body)

    assert (page.status, seen) == (403, [])
    assert b'name="reason" value="&quot;&gt;&lt;script&gt;"' in page.body
    assert b'name="empty" value=""' in page.body
    assert b'name="token"' in page.body
    assert b"old-key" not in page.body
    assert b"<script>" not in page.body


def test_a_form_without_the_cookie_needs_the_token() -> None:
    """A request with the token needs no page key; without cookie and token it is refused."""
    seen: list[bytes] = []
    with serve([_form_route(seen)], access=AccessRules(token=TOKEN)) as server:
        right = ask(server.url, "POST", "/change", headers={"Authorization": f"Bearer {TOKEN}"}, body=b"x")
        wrong = ask(server.url, "POST", "/change", body=urlencode({"key": page_key(TOKEN)}).encode())

    assert (right.status, wrong.status) == (200, 401)
    assert seen == [b"x"]


@pytest.mark.parametrize("method", METHODS)
def test_without_a_token_unknown_paths_are_not_revealed(method: str) -> None:
    """Without a token, paths with and without a route are refused with the same status."""
    with serve(_routes(), access=AccessRules(token=TOKEN)) as server:
        there, nowhere = (ask(server.url, method, path) for path in ("/thing", "/nothing"))

    assert nowhere.status == 401
    assert there.status == (204 if method == "OPTIONS" else 401)


@pytest.mark.parametrize(
    ("caller", "status"),
    [(caller, 403) for caller in CALLERS if "script" in caller or "image" in caller or "frame" in caller]
    + [(caller, 200) for caller in CALLERS if "form" in caller or caller == "sandbox"],
)
def test_a_cross_site_route_takes_forms_only(caller: str, status: int) -> None:
    """A route that allows other sites takes forms from them in a tab, and no scripts or frames."""
    route = Route(method="POST", path="/thing", handler=lambda _: None, summary="x", public=True, cross_site=True)
    app = make_app([route], AccessRules(token=TOKEN), Limits())

    assert _status(app, "POST", _headers("localhost", caller, "none", "POST")) == status
    assert _status(app, "POST", _headers("evil.example", caller, "none", "POST")) == 421


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=80), st.text(max_size=80))
def test_no_header_breaks_access_control(host: str, origin: str, authorization: str, cookie: str) -> None:
    """Any headers without a valid credential are refused with 401, 403 or 421."""
    headers = {"Host": host, "Origin": origin, "Authorization": authorization, "Cookie": cookie}
    with pytest.raises(HttpError, match=r"host|token|signature|pages of") as refused:
        AccessControl(AccessRules(token=make_token(), secret=SECRET)).admit(headers, "GET", "/")

    assert refused.value.status in (401, 403, 421)


def test_the_cookie_does_not_reveal_the_token() -> None:
    """The cookie does not contain the token and is not accepted in its place."""
    access = AccessRules(token=TOKEN)

    assert TOKEN not in cookie_value(TOKEN)
    with pytest.raises(HttpError, match="wrong"):
        access.check({"Host": "localhost", "Authorization": f"Bearer {cookie_value(TOKEN)}"})


@pytest.mark.parametrize("other", ['a={"x":1}', "a=x y", "a", "", "=; ;"])
def test_cookies_of_other_programs_do_not_log_out(other: str) -> None:
    """Browsers send the cookies of all programs of a host, also those that no standard permits."""
    headers = {"Host": "localhost:8000", "Cookie": f"{other}; dropflow_8000={cookie_value(TOKEN)}; {other}"}

    assert AccessRules(token=TOKEN).check(headers) == Proof.COOKIE


def test_servers_of_one_host_have_different_cookies() -> None:
    """Cookie names contain the port, because browsers send the cookies of a host to all of its ports."""
    assert len({cookie_name(host) for host in ("localhost:8000", "localhost:8001", "localhost", "[::1]:8002")}) == 4


# Signatures.

REQUEST = {"method": "PUT", "host": "node:8000", "target": "/x?y=1", "content_type": "a/b", "content_encoding": "gzip"}
BODY = digest((b"abc",))


def _introduced(url: str) -> Signer:
    """Return a signer that has learned for which of the managers on this host to sign."""
    signer, host = Signer(SECRET), url.removeprefix("http://")
    header = signer.sign("GET", host, "/thing", digest((b"",)))
    assert signer.learn(
        ask(url, "GET", "/thing", headers={"Authorization": header}).headers["Www-Authenticate"], header
    )
    return signer


def _meet(signer: Signer, verifier: Verifier) -> Signer:
    """Have the verifier refuse a first request, and the signer learn from the answer."""
    header = signer.sign("GET", "h", "/", BODY)
    with pytest.raises((HttpError, ClockSkewError), match=r"the request (is|was) signed") as refused:
        verifier.check(header, "GET", "h", "/")
    assert signer.learn(refused.value.challenge, header)
    return signer


def _pair() -> tuple[Signer, Verifier, VirtualClock]:
    clock = VirtualClock()
    verifier = Verifier(SECRET, clock=clock)
    return _meet(Signer(SECRET, clock=clock), verifier), verifier, clock


def test_a_signature_admits_its_own_request() -> None:
    """Verification returns the hash that the body must have."""
    signer, verifier, _ = _pair()
    body = digest((b"ab", memoryview(b"c")))

    assert verifier.check(signer.sign(body=body, **REQUEST), **REQUEST).digest == body == BODY


def test_the_signature_of_a_request_stays_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key, the order and the form of the parts are fixed: managers of other versions accept the signature."""
    monkeypatch.setattr("dropflow.api.signing.secrets.token_hex", lambda size: "0f" * size)
    verifier = Verifier(SECRET, clock=VirtualClock(1_800_000_000.0))
    signature = "758b96ab60f542d9faeb02db8e4d87636e46ea75dac9e10eb099e6affafb7b59"
    header = f"Dropflow time=1800000000.000, nonce={'0f' * 16}, body={BODY}, manager={'0f' * 16}, signature={signature}"

    assert verifier.check(header, **REQUEST).digest == BODY


@pytest.mark.parametrize(
    "other",
    [
        {"method": "POST"},
        {"host": "other:8000"},
        {"host": "node:8001"},
        {"target": "/x?y=2"},
        {"target": "/x?y=1&y=1"},
        {"target": "/%78?y=1"},
        {"content_type": ""},
        {"content_encoding": "identity"},
    ],
)
def test_a_signature_admits_no_other_request(other: dict[str, str]) -> None:
    """It is refused with another method, host, port, path, query, or type or encoding of the body."""
    signer, verifier, _ = _pair()

    with pytest.raises(HttpError, match="the signature is wrong"):
        verifier.check(signer.sign(body=BODY, **REQUEST), **REQUEST | other)


@given(st.data())
def test_no_part_of_a_signature_can_be_changed(data: st.DataObject) -> None:
    """A signature with one changed, added or removed character is refused, and no character raises another error."""
    signer, verifier, _ = _pair()
    header = signer.sign(body=BODY, **REQUEST)
    first = data.draw(st.integers(header.index("time="), len(header)))
    last = min(first + data.draw(st.integers(0, 1)), len(header))
    changed = header[:first] + data.draw(st.text(max_size=1)) + header[last:]
    assume(changed != header)

    with pytest.raises(HttpError, match="signature"):
        verifier.check(changed, **REQUEST)


@pytest.mark.parametrize("field", ["time", "nonce", "body", "manager", "signature"])
@pytest.mark.parametrize("change", ["twice", "twice in front", "missing", "empty", "capital", "quoted"])
def test_each_field_of_a_signature_is_read_once(field: str, change: str) -> None:
    """A field that is there twice, missing, empty or in another form is refused, whatever its values are."""
    signer, verifier, clock = _pair()
    old = signer.sign(body=BODY, **REQUEST)
    verifier.check(old, **REQUEST)
    clock.advance(3600)
    fields = dict(piece.split("=") for piece in old.removeprefix("Dropflow ").split(", "))
    fresh = fields | {"time": f"{clock.now():.3f}", "nonce": "1" * 32}
    pieces = [f"{name}={value}" for name, value in fields.items()]
    place = list(fields).index(field)
    match change:
        case "twice":
            pieces.append(f"{field}={fresh[field]}")
        case "twice in front":
            pieces.insert(0, f"{field}={fresh[field]}")
        case "missing":
            del pieces[place]
        case "empty":
            pieces[place] = f"{field}="
        case "capital":
            pieces[place] = pieces[place].replace(field, field.title())
        case "quoted":
            pieces[place] = f'{field}="{fields[field]}"'

    with pytest.raises(HttpError, match="the Dropflow signature cannot be read"):
        verifier.check(f"Dropflow {', '.join(pieces)}", **REQUEST)


def test_an_unknown_field_of_a_signature_is_refused() -> None:
    """No field is ignored, so none can be given a meaning that another reader of the header does not know."""
    signer, verifier, _ = _pair()

    with pytest.raises(HttpError, match="cannot be read"):
        verifier.check(f"{signer.sign(body=BODY, **REQUEST)}, until=9999999999.000", **REQUEST)


def test_a_signature_is_for_one_manager() -> None:
    """A request for one manager is refused by all others, also before it was used, and by the next process."""
    signer, verifier, clock = _pair()
    header = signer.sign(body=BODY, **REQUEST)

    for other in (Verifier(SECRET, clock=clock), Verifier(SECRET, clock=VirtualClock())):
        with pytest.raises(HttpError, match="for another manager, or for this one before it was started") as refused:
            other.check(header, **REQUEST)
        assert refused.value.status == 401
    assert verifier.check(header, **REQUEST).digest == BODY


def test_servers_of_one_host_refuse_each_others_requests() -> None:
    """A request that was signed for one port is refused at another one, with any Host, and is valid at its own."""
    access = AccessRules(token=TOKEN, secret=SECRET)
    with serve(_routes(), access=access) as mine, serve(_routes(), access=access) as other:
        host = f"127.0.0.1:{mine.port}"
        headers = {"Host": host, "Authorization": _introduced(mine.url).sign("GET", host, "/thing", digest((b"",)))}

        assert ask(other.url, "GET", "/thing", headers=headers).status == 401
        assert ask(other.url, "GET", "/thing", headers=headers | {"Host": f"127.0.0.1:{other.port}"}).status == 401
        assert ask(mine.url, "GET", "/thing", headers=headers).status == 200
        assert ask(mine.url, "GET", "/thing", headers=headers).status == 401


def test_a_signed_request_is_accepted_once() -> None:
    """A second request with the same nonce is refused for as long as its time is acceptable."""
    signer, verifier, clock = _pair()
    header = signer.sign(body=BODY, **REQUEST)
    verifier.check(header, **REQUEST)
    clock.advance(WINDOW - 1)

    with pytest.raises(HttpError, match="was received before"):
        verifier.check(header, **REQUEST)


def test_setting_back_the_clock_of_the_system_revives_no_request() -> None:
    """The time of signatures goes on when the clock of the system is set back by an hour."""

    class SetBack(VirtualClock):
        def now(self) -> float:
            return super().now() - (3600 if self.monotonic() > 1800 else 0)

    clock = SetBack()
    verifier = Verifier(SECRET, clock=clock)
    signer = _meet(Signer(SECRET, clock=clock), verifier)
    header = signer.sign(body=BODY, **REQUEST)
    verifier.check(header, **REQUEST)
    clock.advance(3600)

    with pytest.raises(ClockSkewError, match="behind the clock of this host"):
        verifier.check(header, **REQUEST)


@pytest.mark.parametrize(("seconds", "way"), [(WINDOW + 5, "behind"), (-WINDOW - 5, "ahead of")])
def test_a_refusal_names_the_clock_difference(seconds: float, way: str) -> None:
    """The refusal says by how much and in which direction the clocks differ."""
    signing = VirtualClock()
    verifier = Verifier(SECRET, clock=VirtualClock())
    signer = _meet(Signer(SECRET, clock=signing), verifier)
    signing.advance(-seconds)

    with pytest.raises(ClockSkewError, match=f"65 s {way}"):
        verifier.check(signer.sign(body=BODY, **REQUEST), **REQUEST)


def test_refusals_tell_how_long_a_signature_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time in their texts is the one that is enforced."""
    monkeypatch.setattr("dropflow.api.signing.WINDOW", 5.0)
    monkeypatch.setattr("dropflow.api.signing._MOST_NONCES", 0)
    clock = VirtualClock()
    verifier = Verifier(SECRET, clock=VirtualClock())
    signer = _meet(Signer(SECRET, clock=clock), verifier)
    with pytest.raises(HttpError, match="too many signed requests in 10 s"):
        verifier.check(signer.sign(body=BODY, **REQUEST), **REQUEST)
    clock.advance(6.0)
    with pytest.raises(ClockSkewError, match="6 s ahead of") as caught:
        verifier.check(signer.sign(body=BODY, **REQUEST), **REQUEST)

    assert caught.value.hint.endswith("a signature is valid for 5 s")


@pytest.mark.parametrize("seconds", [0.0, 70.0, -70.0, 1e9])
def test_a_caller_learns_the_manager_and_its_time(seconds: float) -> None:
    """One refusal has all that a caller needs to sign for the manager and by its clock."""
    signer = Signer(SECRET, clock=VirtualClock())
    verifier = Verifier(SECRET, clock=VirtualClock(1.8e9 + seconds))
    _meet(signer, verifier)

    assert verifier.check(signer.sign(body=BODY, **REQUEST), **REQUEST).digest == BODY


def test_a_challenge_without_a_valid_proof_is_ignored() -> None:
    """A challenge without proof, with the proof of another request or key, or with changes is not taken."""
    signer, clock = Signer(SECRET, clock=VirtualClock()), VirtualClock(1.9e9)
    mine, other = (signer.sign("GET", "h", "/", BODY) for _ in range(2))
    foreign = Signer(b"y" * 40, clock=VirtualClock()).sign("GET", "h", "/", BODY)

    def challenge(secret: bytes, header: str) -> str:
        with pytest.raises(HttpError, match="for another manager") as refused:
            Verifier(secret, clock=clock).check(header, "GET", "h", "/")
        return refused.value.challenge

    genuine = challenge(SECRET, mine)
    manager = genuine.partition("manager=")[2][:32]
    forged = (
        "",
        "Bearer",
        "Dropflow",
        f"Dropflow time=1900000000.000, manager={manager}, proof=",
        genuine.replace("19", "20", 1),
        genuine.replace(manager, manager[::-1]),
        f"{genuine}, time=2000000000.000",
        challenge(SECRET, other),
        challenge(b"y" * 40, foreign),
    )

    assert [signer.learn(text, mine) for text in forged] == [False] * len(forged)
    assert signer.learn(genuine, mine)


def test_a_body_that_was_not_signed_is_refused() -> None:
    """The body is compared with the hash in the signature."""
    with serve(_routes(), access=AccessRules(token=TOKEN, secret=SECRET)) as server:
        host, signer = f"127.0.0.1:{server.port}", _introduced(server.url)

        def signed(method: str, body: bytes) -> dict[str, str]:
            return {"Authorization": signer.sign(method, host, "/thing", digest((body,)))}

        assert ask(server.url, "POST", "/thing", headers=signed("POST", b"good"), body=b"good").body == b"good"
        assert ask(server.url, "POST", "/thing", headers=signed("POST", b"good"), body=b"evil").status == 401
        assert ask(server.url, "DELETE", "/thing", headers=signed("DELETE", b"x"), body=b"").status in (400, 401)


def test_a_signed_request_for_an_unknown_path_is_answered_404() -> None:
    """A manager of another version may lack a path: that is no error of the key. Another key learns nothing."""
    with serve(_routes(), access=AccessRules(token=TOKEN, secret=SECRET)) as server:
        host, signer = f"127.0.0.1:{server.port}", _introduced(server.url)
        for secret, status in ((signer, 404), (Signer(b"x" * 40), 401)):
            header = secret.sign("GET", host, "/nothing", digest((b"",)))
            assert ask(server.url, "GET", "/nothing", headers={"Authorization": header}).status == status


def test_a_server_without_a_cluster_key_takes_no_signatures() -> None:
    """The refusal says that the server has no cluster key."""
    headers = {"Host": "localhost", "Authorization": Signer(SECRET).sign("GET", "localhost", "/", BODY)}

    with pytest.raises(HttpError, match="no cluster key"):
        AccessControl(AccessRules(token=TOKEN)).admit(headers, "GET", "/")


# Token files.


def test_only_the_owner_can_read_a_stored_token(tmp_path: Path) -> None:
    """The file has mode 0600, and loading returns the token."""
    path = tmp_path / "deep" / "token"
    store_token(path, TOKEN)

    assert load_token(path) == TOKEN
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_token(tmp_path / "none") is None


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """A token file that other users can read is not used."""
    path = tmp_path / "token"
    store_token(path, TOKEN)
    path.chmod(0o644)

    with pytest.raises(UsageError, match="other users can read"):
        load_token(path)


def test_a_token_file_with_a_damaged_byte_is_refused(tmp_path: Path) -> None:
    """The error says that the file has bytes that are not ASCII."""
    path = tmp_path / "token"
    store_token(path, TOKEN)
    path.write_bytes(b"\xff" + path.read_bytes()[1:])

    with pytest.raises(UsageError, match="bytes that are not ASCII"):
        load_token(path)


def test_a_token_that_cannot_be_stored_is_an_error(tmp_path: Path) -> None:
    """The error names the file."""
    (tmp_path / "file").write_text("")

    with pytest.raises(StorageError, match="token"):
        store_token(tmp_path / "file" / "token", TOKEN)


def test_limits_have_defaults() -> None:
    """By default a server limits bodies, drops and streams."""
    assert all(value > 0 for value in (Limits().body, Limits().drops, Limits().streams))


def test_the_memory_for_signed_requests_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """When too many nonces are kept, further requests are refused; nonces are removed once their time has expired."""
    monkeypatch.setattr("dropflow.api.signing._MOST_NONCES", 3)
    signer, verifier, clock = _pair()

    def verify() -> Signed:
        return verifier.check(signer.sign("GET", "h", "/", BODY), "GET", "h", "/")

    for _ in range(3):
        verify()
    with pytest.raises(HttpError, match="too many signed requests"):
        verify()
    clock.advance(2 * WINDOW + 1)
    verify()


# Keys of users.

MADE = 1_790_000_000
ALICE = derive_user_key(SECRET, "alice", MADE)


def _of_user(revoked: Path, key: UserKey = ALICE) -> tuple[Signer, Verifier]:
    clock = VirtualClock()
    verifier = Verifier(SECRET, revoked=revoked, clock=clock)
    return _meet(Signer(key, clock=clock), verifier), verifier


def test_the_signature_of_a_user_tells_who_it_is(tmp_path: Path) -> None:
    """Managers accept it without having heard of the user, once, for this request."""
    signer, verifier = _of_user(tmp_path / "none")
    header = signer.sign(body=BODY, **REQUEST)

    assert verifier.check(header, **REQUEST) == Signed(BODY, "alice")
    with pytest.raises(HttpError, match="was received before"):
        verifier.check(header, **REQUEST)


def test_the_signature_of_a_user_stays_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How keys of users are derived and sign is fixed: keys that were made are valid for later versions."""
    monkeypatch.setattr("dropflow.api.signing.secrets.token_hex", lambda size: "0f" * size)
    verifier = Verifier(SECRET, revoked=tmp_path / "none", clock=VirtualClock(1_800_000_000.0))
    signature = "62bceab855ed542fa175d67f67eac0d7213c7f9ea0a28552a81a27808372db21"
    header = (
        f"Dropflow time=1800000000.000, nonce={'0f' * 16}, body={BODY}, manager={'0f' * 16}, user=alice@{MADE},"
        f" signature={signature}"
    )

    assert verifier.check(header, **REQUEST).user == "alice"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f"alice@{MADE}", f"bob@{MADE}"),
        (f"alice@{MADE}", f"alice@{MADE + 1}"),
        (f" user=alice@{MADE},", ""),
        (f" user=alice@{MADE},", f" user=alice@{MADE}, user=bob@{MADE},"),
        (f"alice@{MADE}", f"Alice@{MADE}"),
        (f"alice@{MADE}", f"alice@0{MADE}"),
        (f"alice@{MADE}", "alice"),
        (f"alice@{MADE}", f"@{MADE}"),
    ],
)
def test_a_user_cannot_be_another(old: str, new: str, tmp_path: Path) -> None:
    """A changed name or time of a key is refused, and so is a user's signature without a name: as the cluster's."""
    signer, verifier = _of_user(tmp_path / "none")
    header = signer.sign(body=BODY, **REQUEST)
    assert old in header

    with pytest.raises(HttpError, match="signature") as refused:
        verifier.check(header.replace(old, new), **REQUEST)
    assert refused.value.status == 401


def test_a_user_cannot_sign_as_the_cluster_or_as_others(tmp_path: Path) -> None:
    """With the secret of a user's key, neither the cluster's signatures nor another user's can be made."""
    verifier = Verifier(SECRET, revoked=tmp_path / "none")
    forged = [
        ALICE.secret,
        derive_user_key(ALICE.secret, "bob", MADE),
        UserKey(name="bob", made=MADE, secret=ALICE.secret),
    ]

    for key in forged:
        with pytest.raises(HttpError, match="is wrong"):
            verifier.check(Signer(key).sign("GET", "h", "/", BODY), "GET", "h", "/")


def test_a_revoked_key_is_refused_at_once(tmp_path: Path) -> None:
    """From the next request on, without a restart; keys of others and a later one of the same user are accepted."""
    revoked = tmp_path / "revoked"
    signer, verifier = _of_user(revoked)
    verifier.check(signer.sign(body=BODY, **REQUEST), **REQUEST)
    revoked.write_text(f"# revoked\nalice {MADE}\n")

    with pytest.raises(HttpError, match="the key of user alice is revoked") as refused:
        verifier.check(signer.sign(body=BODY, **REQUEST), **REQUEST)
    assert refused.value.status == 403
    for key in (derive_user_key(SECRET, "alice", MADE + 1), derive_user_key(SECRET, "bob", MADE)):
        later = _meet(Signer(key, clock=VirtualClock()), verifier)
        assert verifier.check(later.sign(body=BODY, **REQUEST), **REQUEST).user == key.name


@pytest.mark.parametrize("content", ["alice", "alice x", f"alice {MADE} no", f"Alice {MADE}", f"alice, {MADE}", "\xff"])
def test_no_user_is_admitted_while_the_revoked_ones_are_unknown(content: str, tmp_path: Path) -> None:
    """If a line cannot be read, if the file cannot be, or if there is none by design, all keys of users are refused."""
    revoked = tmp_path / "revoked"
    revoked.write_text(content, encoding="latin-1")
    (tmp_path / "directory").mkdir()

    with pytest.raises(BadFileError, match="line 1 is not a revoked user"):
        read_revoked(revoked)
    for path in (revoked, tmp_path / "directory", None):
        header = Signer(ALICE).sign("GET", "h", "/", BODY)
        with pytest.raises(HttpError, match=r"no key of a user is accepted|takes no keys of users") as refused:
            Verifier(SECRET, revoked=path).check(header, "GET", "h", "/")
        assert refused.value.status == 403


@pytest.mark.parametrize("name", ["", "Alice", "1a", "a b", "a@1", "a" * 33, "ä", "a\n", "../a", "a/b", "a,b", "."])
def test_other_names_of_users_are_refused(name: str) -> None:
    """A name is in headers, logs and names of files, where it needs no quotes."""
    with pytest.raises(BadParameterError, match="cannot be the name of a user"):
        derive_user_key(SECRET, name, MADE)


def test_the_key_of_a_user_is_enough_where_a_route_permits_it(tmp_path: Path) -> None:
    """It reads everywhere, and changes something only at the routes that say so."""

    def echo(call: Request) -> Response:
        return Response(body={"user": call.user})

    routes = [
        Route(method=method, path=path, handler=echo, summary="a thing", users=path == "/people")
        for method in ("GET", "POST", "DELETE")
        for path in ("/people", "/managers")
    ]
    with serve(routes, access=AccessRules(token=TOKEN, secret=SECRET, revoked=tmp_path / "none")) as server:
        transport = HttpTransport(server.url, token=None, secret=ALICE, timeout=60)
        for method, path in ((route.method, route.path) for route in routes):
            if method == "GET" or path == "/people":
                assert transport.ask(ClientRequest(method, path))[1] == b'{"user":"alice"}'
            else:
                with pytest.raises(HttpError, match=f"user alice is not enough for {method} /managers"):
                    transport.ask(ClientRequest(method, path))
        transport.close()


def test_many_requests_of_users_do_not_lock_out_the_managers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory for signed requests of users is not that of the managers."""
    monkeypatch.setattr("dropflow.api.signing._MOST_NONCES", 1)
    signer, verifier = _of_user(tmp_path / "none")
    verifier.check(signer.sign(body=BODY, **REQUEST), **REQUEST)
    with pytest.raises(HttpError, match="too many signed requests"):
        verifier.check(signer.sign(body=BODY, **REQUEST), **REQUEST)

    manager = _meet(Signer(SECRET, clock=VirtualClock()), verifier)
    assert verifier.check(manager.sign(body=BODY, **REQUEST), **REQUEST).user == ""


@pytest.mark.parametrize(
    "header", ["Dropflow", "Dropflow time=x, nonce=, body=, signature=", "Dropflow time=nan,nonce=a"]
)
def test_a_signature_that_cannot_be_read_is_refused(header: str) -> None:
    """A malformed signature is refused with 401."""
    with pytest.raises(HttpError, match="signature") as refused:
        Verifier(SECRET).check(header, "GET", "h", "/")

    assert refused.value.status == 401
