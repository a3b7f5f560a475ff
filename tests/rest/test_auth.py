"""Who may enter."""

import itertools
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dropflow.errors import ClockSkewError, HttpError, StorageError, UsageError
from dropflow.rest.auth import (
    Door,
    Guard,
    cookie_name,
    cookie_value,
    is_loopback,
    load_token,
    make_token,
    store_token,
)
from dropflow.rest.kit import Answer, Call, Limits, Route
from dropflow.rest.signing import WINDOW, Signer, Verifier, digest
from dropflow.testing.clock import VirtualClock
from dropflow.testing.serving import ask, serve

TOKEN = "a-token"  # noqa: S105 - guards nothing
SECRET = b"s" * 40
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
HOSTS = {
    "127.0.0.1:1": True,
    "localhost": True,
    "[::1]:1": True,
    "known.example": True,
    "evil.example": False,
    "": False,
}
ORIGINS = {None: True, "own": True, "https://eagle.example": True, "https://evil.example": False, "null": False}
CREDENTIALS = ("none", "bearer", "wrong bearer", "cookie", "wrong cookie", "signature", "wrong signature")


def _everything() -> list[Route]:
    def echo(call: Call) -> Answer:
        return Answer(body=call.body or b"{}")

    verbs = [method for method in METHODS if method not in ("HEAD", "OPTIONS")]
    return [Route(method=method, path="/thing", handler=echo, summary="a thing") for method in verbs]


def _headers(host: str, origin: str | None, credential: str, method: str) -> dict[str, str]:
    headers = {"Host": host}
    if origin is not None:
        headers["Origin"] = f"http://{host}" if origin == "own" else origin
    empty = digest((b"",))
    match credential:
        case "bearer":
            headers["Authorization"] = f"Bearer {TOKEN}"
        case "wrong bearer":
            headers["Authorization"] = "Bearer wrong"
        case "cookie":
            headers["Cookie"] = f"other=1; {cookie_name(host)}={cookie_value(TOKEN)}"
        case "wrong cookie":
            headers["Cookie"] = f"{cookie_name(host)}={TOKEN}"
        case "signature":
            headers["Authorization"] = Signer(SECRET).sign(method, host, "/thing", empty)
        case "wrong signature":
            headers["Authorization"] = Signer(b"x" * 40).sign(method, host, "/thing", empty)
    return headers


def test_only_the_right_host_origin_and_credential_enter_whatever_the_method() -> None:
    """The whole matrix: 421 for a foreign host, else 403 for a foreign origin, else 401 without a credential."""
    guard = Guard(
        token=TOKEN, secret=SECRET, hosts=frozenset({"known.example"}), origins=frozenset({"https://eagle.example"})
    )
    good = {"bearer", "cookie", "signature"}
    wrong = []
    with serve(_everything(), guard=guard) as server:
        for method, host, origin, credential in itertools.product(METHODS, HOSTS, ORIGINS, CREDENTIALS):
            if not HOSTS[host]:
                expected = 421
            elif not ORIGINS[origin]:
                expected = 403
            elif method == "OPTIONS":
                expected = 204  # a browser asks before it may send a credential
            else:
                expected = 200 if credential in good else 401
            found = ask(server.url, method, "/thing", headers=_headers(host, origin, credential, method)).status
            if found != expected:
                wrong.append((method, host, origin, credential, found, expected))

    assert wrong == []


@pytest.mark.parametrize("method", METHODS)
def test_strangers_cannot_tell_pages_from_nothing(method: str) -> None:
    """Without a token, a path that is served and one that is not are refused alike."""
    with serve(_everything(), guard=Guard(token=TOKEN)) as server:
        there, nowhere = (ask(server.url, method, path) for path in ("/thing", "/nothing"))

    assert nowhere.status == 401
    assert there.status == (204 if method == "OPTIONS" else 401)


def test_a_page_of_another_site_that_sends_no_origin_is_refused() -> None:
    """Navigation from another site is told by Sec-Fetch-Site."""
    with pytest.raises(HttpError, match="other sites"):
        Guard(token=None).check({"Host": "localhost", "Sec-Fetch-Site": "cross-site"})


def test_only_what_a_route_allows_comes_from_other_sites() -> None:
    """EAGLE's form may post where the route says so, and needs the right host even there."""
    guard = Guard(token=None)
    headers = {"Host": "localhost", "Origin": "https://eagle.example"}

    guard.check(headers, cross_site=True)
    with pytest.raises(HttpError, match="may not call"):
        guard.check(headers)
    with pytest.raises(HttpError, match="does not answer for the host"):
        guard.check(headers | {"Host": "rebound.example"}, cross_site=True)


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=80), st.text(max_size=80))
def test_no_header_breaks_the_guard(host: str, origin: str, authorization: str, cookie: str) -> None:
    """Whatever stands in the headers, a request is let in or refused with a status, and never lets in a stranger."""
    headers = {"Host": host, "Origin": origin, "Authorization": authorization, "Cookie": cookie}
    with pytest.raises(HttpError) as refused:
        Door(Guard(token=make_token(), secret=SECRET)).admit(headers, "GET", "/")

    assert refused.value.status in (401, 403, 421)


def test_the_cookie_does_not_tell_the_token() -> None:
    """Who steals the cookie has not got the token, and cannot use the cookie as one."""
    guard = Guard(token=TOKEN)

    assert TOKEN not in cookie_value(TOKEN)
    with pytest.raises(HttpError, match="wrong"):
        guard.check({"Host": "localhost", "Authorization": f"Bearer {cookie_value(TOKEN)}"})


def test_servers_of_one_host_have_different_cookies() -> None:
    """Browsers do not keep ports apart, so the names of cookies do."""
    assert len({cookie_name(host) for host in ("localhost:8000", "localhost:8001", "localhost", "[::1]:8002")}) == 4


# Signatures.


def _verified(clock: VirtualClock, header: str, **other: str) -> str:
    request = {"method": "PUT", "host": "node:8000", "target": "/x?y=1"} | other
    return Verifier(SECRET, clock=clock).check(header, request["method"], request["host"], request["target"])


def test_a_signature_admits_its_own_request() -> None:
    """Who verifies learns the hash that the body must have."""
    clock = VirtualClock()
    body = digest((b"ab", memoryview(b"c")))
    header = Signer(SECRET, clock=clock).sign("PUT", "node:8000", "/x?y=1", body)

    assert _verified(clock, header) == body == digest((b"abc",))


@pytest.mark.parametrize("other", [{"method": "POST"}, {"host": "other:8000"}, {"target": "/x?y=2"}])
def test_a_signature_admits_no_other_request(other: dict[str, str]) -> None:
    """Neither another method, nor another manager, nor another path or query."""
    clock = VirtualClock()
    header = Signer(SECRET, clock=clock).sign("PUT", "node:8000", "/x?y=1", digest((b"",)))

    with pytest.raises(HttpError, match="the signature is wrong"):
        _verified(clock, header, **other)


@given(st.data())
def test_no_part_of_a_signature_can_be_changed(data: st.DataObject) -> None:
    """Any other character at any place is refused, and never breaks the verifier."""
    clock = VirtualClock()
    header = Signer(SECRET, clock=clock).sign("PUT", "node:8000", "/x?y=1", digest((b"",)))
    place = data.draw(st.integers(header.index("time="), len(header) - 1))
    other = data.draw(st.characters(codec="ascii"))
    assume(other != header[place] != " ")

    with pytest.raises(HttpError):
        _verified(clock, header[:place] + other + header[place + 1 :])


def test_a_signed_request_is_good_once() -> None:
    """A second one with the same nonce is refused, for as long as its time would be accepted."""
    clock = VirtualClock()
    verifier = Verifier(SECRET, clock=clock)
    header = Signer(SECRET, clock=clock).sign("GET", "h", "/", "")
    verifier.check(header, "GET", "h", "/")
    clock.advance(WINDOW - 1)

    with pytest.raises(HttpError, match="was here before"):
        verifier.check(header, "GET", "h", "/")


@pytest.mark.parametrize(("seconds", "way"), [(WINDOW + 5, "behind"), (-WINDOW - 5, "ahead of")])
def test_clocks_that_differ_are_told(seconds: float, way: str) -> None:
    """The refusal says by how much and in which direction the clocks differ."""
    signing, verifying = VirtualClock(), VirtualClock()
    verifying.advance(seconds)
    header = Signer(SECRET, clock=signing).sign("GET", "h", "/", "")

    with pytest.raises(ClockSkewError, match=f"65 s {way}"):
        Verifier(SECRET, clock=verifying).check(header, "GET", "h", "/")


def test_a_body_that_was_not_signed_is_refused() -> None:
    """The body is compared with the hash in the signature."""
    with serve(_everything(), guard=Guard(token=TOKEN, secret=SECRET)) as server:
        host = f"127.0.0.1:{server.port}"

        def signed(body: bytes) -> dict[str, str]:
            return {"Authorization": Signer(SECRET).sign("POST", host, "/thing", digest((body,)))}

        assert ask(server.url, "POST", "/thing", headers=signed(b"good"), body=b"good").body == b"good"
        assert ask(server.url, "POST", "/thing", headers=signed(b"good"), body=b"evil").status == 401
        assert ask(server.url, "DELETE", "/thing", headers=signed(b"x"), body=b"").status in (400, 401)


def test_a_server_without_a_cluster_key_takes_no_signatures() -> None:
    """And says so."""
    headers = {"Host": "localhost", "Authorization": Signer(SECRET).sign("GET", "localhost", "/", "")}

    with pytest.raises(HttpError, match="no cluster key"):
        Door(Guard(token=TOKEN)).admit(headers, "GET", "/")


# Token files.


def test_a_stored_token_is_its_owners_only(tmp_path: Path) -> None:
    """The file has mode 0600, and what was stored is loaded."""
    path = tmp_path / "deep" / "token"
    store_token(path, TOKEN)

    assert load_token(path) == TOKEN
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_token(tmp_path / "none") is None


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """Who could read it may have read it."""
    path = tmp_path / "token"
    store_token(path, TOKEN)
    path.chmod(0o644)

    with pytest.raises(UsageError, match="other users can read"):
        load_token(path)


def test_a_token_that_cannot_be_stored_is_told(tmp_path: Path) -> None:
    """With the file's name."""
    (tmp_path / "file").write_text("")

    with pytest.raises(StorageError, match="token"):
        store_token(tmp_path / "file" / "token", TOKEN)


def test_loopback_is_known_by_name_and_number() -> None:
    """And nothing else passes for it."""
    assert all(map(is_loopback, ("localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(is_loopback, ("", "example.org", "10.0.0.1", "::", "localhost.evil.example")))


def test_limits_have_defaults() -> None:
    """A server without limits of its own bounds bodies, drops and streams."""
    assert all(value > 0 for value in (Limits().body, Limits().drops, Limits().streams))


def test_the_memory_for_signed_requests_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it requests are put off, not let in twice; old ones are forgotten when they would be refused anyway."""
    monkeypatch.setattr("dropflow.rest.signing._NONCES", 3)
    clock = VirtualClock()
    signer, verifier = Signer(SECRET, clock=clock), Verifier(SECRET, clock=clock)

    def enter() -> str:
        return verifier.check(signer.sign("GET", "h", "/", ""), "GET", "h", "/")

    for _ in range(3):
        enter()
    with pytest.raises(HttpError, match="too many signed requests"):
        enter()
    clock.advance(2 * WINDOW + 1)
    enter()


@pytest.mark.parametrize(
    "header", ["Dropflow", "Dropflow time=x, nonce=, body=, signature=", "Dropflow time=nan,nonce=a"]
)
def test_a_signature_that_cannot_be_read_is_refused(header: str) -> None:
    """With 401, as any other stranger."""
    with pytest.raises(HttpError) as refused:
        Verifier(SECRET).check(header, "GET", "h", "/")

    assert refused.value.status == 401
