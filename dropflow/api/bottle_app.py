"""A bottle application from a table of routes.

Each `dropflow.api.routes.Route` names the types of its query, body and answer, as msgspec structs. The
application, the checks of every request and the OpenAPI document (`dropflow.api.openapi`) come from the same
table. Answers have one envelope, ``{"ok": true, ...}``, and errors one form, ``{"ok": false, "error": {...}}``.
"""

import gc
import json
import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from itertools import chain
from types import MappingProxyType
from typing import Any, get_type_hints
from urllib.parse import quote, unquote

import bottle
import msgspec

from dropflow.api.auth import (
    HAS_CREDENTIAL,
    HEAD_CHECK,
    SAFE_METHODS,
    AccessControl,
    AccessRules,
    Admission,
    HeadCheck,
    Proof,
    headers_of,
    path_of,
    target_of,
)
from dropflow.api.error_body import status_of, to_body
from dropflow.api.error_pages import CONFIRM_POLICY, confirm_page, error_page, relative_address, wants_page
from dropflow.api.request_bodies import Account, Budget, check_depth, read_body, too_large
from dropflow.api.routes import Limits, Request, Response, Route, posted_fields
from dropflow.clock import Clock, SystemClock
from dropflow.errors import ClockSkewError, DropflowError, HttpError, InternalError, RangeError

_MORE: Mapping[int, tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        HTTPStatus.UNAUTHORIZED: (("WWW-Authenticate", "Bearer"),),
        HTTPStatus.SERVICE_UNAVAILABLE: (("Retry-After", "5"),),
    }
)
"""Headers that belong to a status."""
_AWAITED = "/sessions/"
"""Pages below this path may come: who has opened one before its session exists gets it when it does."""
_REFRESH_SECONDS = 3
"""Seconds after which a browser loads a page again whose content is not there yet."""
_log = logging.getLogger("dropflow.api")
_AUDIT = logging.getLogger("dropflow.audit")
_CREDENTIALS = {
    Proof.TOKEN: "token",
    Proof.COOKIE: "browser",
    Proof.SIGNATURE: "cluster-key",
    Proof.USER: "user-key",
    Proof.OPEN: "none-needed",
}
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_REFUSALS_SECONDS = 10
"""Seconds in which at most `_MOST_REFUSALS` refused requests are logged, so that strangers cannot fill the log."""
_MOST_REFUSALS = 10
"""Refused requests, by address and reason, that are logged in that time."""
_JSON = "application/json"
_DALIUGE_CLIENT = "http://dlg-tm.localhost"
"""The Origin that DALiuGE's own client sends, though it is not a page. A browser would also send ``Sec-Fetch-Site``."""
_BODILESS = ("GET", "HEAD", "DELETE", "OPTIONS")
_IGNORED = 64 * 1024
"""Bytes of a body that is ignored, where a request should have none."""
_LARGE = 32 * 1024 * 1024
"""Bytes of a body, unpacked, after whose request the memory is given back at once."""
_SECURITY_HEADERS = (
    (
        "Content-Security-Policy",
        "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'",
    ),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
_KINDS = {
    "`int`": "a whole number",
    "`float`": "a number",
    "`str`": "text",
    "`bool`": "true or false",
    "`array`": "a list",
    "`object`": "an object",
    "`null`": "null",
}

# Answers to requests that fail: JSON for programs, a page for browsers, DALiuGE's fields for its clients.


class ErrorResponse(msgspec.Struct, frozen=True):
    """Status, media type, headers and body of an answer with an error."""

    status: int
    content_type: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


def error_response(
    error: DropflowError, headers: Mapping[str, str], *, target: str, daliuge: bool = False, login: bool = False
) -> ErrorResponse:
    """Return the answer for an error.

    Parameters
    ----------
    error : DropflowError
        The problem, as an error.
    headers : mapping
        ``Accept`` decides between JSON and a page.
    target : str
        Path and query of the request, to return to after the login.
    daliuge : bool
        Whether DALiuGE's fields are in the body too.
    login : bool
        Whether the server has a login page, to which browsers without a token are redirected.
    """
    status = status_of(error)
    more = _MORE.get(status, ())
    if isinstance(error, ClockSkewError | HttpError) and error.challenge:
        more = (("WWW-Authenticate", error.challenge),)
    if isinstance(error, RangeError):
        more = (("Content-Range", f"bytes */{error.size}"),)
    if wants_page(headers.get("Accept", "")) and not target.startswith("/api/"):
        if status == HTTPStatus.UNAUTHORIZED and login and "Authorization" not in headers:
            return ErrorResponse(303, "text/plain", (("Location", f"/login?next={quote(target, safe='')}"),), b"")
        is_awaited = status == HTTPStatus.NOT_FOUND and target.startswith(_AWAITED)
        if is_awaited:
            more += (("Refresh", str(_REFRESH_SECONDS)),)
        page = error_page(error, target, is_awaited=is_awaited)
        return ErrorResponse(status, "text/html; charset=utf-8", more, page.encode(errors="replace"))
    body: dict[str, object] = {"ok": False, "error": to_body(error)}
    if daliuge:
        body |= {"type": "DaliugeException", "args": [str(error)]}
    return ErrorResponse(status, "application/json", more, _encoded(body))


def _encoded(body: dict[str, object]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        # Half of a surrogate pair, from the name of a file: json keeps it, so that it can be replaced.
        text = json.dumps(msgspec.to_builtins(body), ensure_ascii=False)
        return text.encode(errors="replace")


class _Router(bottle.Router):  # type: ignore[misc] # bottle has no types
    """Compiles the patterns of all routes once. Bottle does it for each that is added: 0.3 s for those of a manager."""

    def _compile(self, method: str) -> None:
        """Leave it to `compile_all`."""

    def compile_all(self) -> None:
        """Make what `match` uses, after the last route was added."""
        for method in self.dyna_routes:
            super()._compile(method)


class RestApp(bottle.Bottle):  # type: ignore[misc] # bottle has no types
    """The WSGI application that `make_app` makes. A server may let it check a request before it reads the body."""

    router: _Router

    def __init__(self, dispatcher: "_Dispatcher", routes: Sequence[Route]) -> None:
        super().__init__(catchall=True)
        self._dispatcher = dispatcher
        self._routes = {dispatcher.callback(route): route for route in routes}
        del self.router  # bottle lets no attribute be replaced
        self.router = _Router()
        for callback, route in self._routes.items():
            self.route(route.path.replace("{", "<").replace("}", ">"), method=route.method, callback=callback)
        self.router.compile_all()

    def check_head(self, environ: dict[str, Any]) -> HeadCheck:
        """Return what is decided about a request from its head, which is in `environ`. Never raises.

        A server that calls this puts the result into the environment of the request, under
        `dropflow.api.auth.HEAD_CHECK`.
        """
        try:
            route, _ = self.router.match(environ | {"PATH_INFO": path_of(target_of(environ))})
        except DropflowError as error:
            return HeadCheck(refused=error)
        except bottle.HTTPError as error:  # the answer to the request has the text, if the caller may see it
            return HeadCheck(refused=HttpError(error.status_code, "there is no such page or method"))
        return self._dispatcher.check_head(self._routes[route.callback], environ)


def make_app(routes: Sequence[Route], access: AccessRules, limits: Limits, *, clock: Clock | None = None) -> RestApp:
    """Return the application that serves `routes` to requests that `access` admits.

    Parameters
    ----------
    routes : sequence of Route
        The table.
    access : AccessRules
        The rules for which requests may enter.
    limits : Limits
        Limits of the cost of a request.
    clock : Clock, optional
        For the time of signatures; the system's unless given.

    Returns
    -------
    RestApp
        A WSGI application. Every exception of a handler becomes an answer with an error.
    """
    dispatcher = _Dispatcher(
        AccessControl(access, clock=clock),
        _Refusals(clock or SystemClock()),
        limits,
        login=any(route.path == "/login" for route in routes),
    )
    paths: dict[str, list[str]] = {}
    for route in routes:
        paths.setdefault(route.path, []).append(route.method)
    options = [_options(path, methods) for path, methods in paths.items() if "OPTIONS" not in methods]
    app = RestApp(dispatcher, [*routes, *options])
    app.add_hook("before_request", _keep_quotes)
    app.add_hook("after_request", lambda: _allow_origin(access))
    app.default_error_handler = dispatcher.outside
    return app


def _keep_quotes() -> None:
    """Make bottle match the quoted path."""
    environ = bottle.request.environ
    try:
        environ["PATH_INFO"] = path_of(target_of(environ))
    except HttpError as error:
        raise bottle.HTTPError(400, error.text) from None


def _allow_origin(access: AccessRules) -> None:
    origin = bottle.request.environ.get("HTTP_ORIGIN")
    if origin in access.origins:
        bottle.response.set_header("Access-Control-Allow-Origin", origin)
        bottle.response.add_header("Vary", "Origin")


def _options(path: str, methods: Sequence[str]) -> Route:
    allowed = ", ".join(sorted({*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])}))
    headers = (
        ("Allow", allowed),
        ("Access-Control-Allow-Methods", allowed),
        (
            "Access-Control-Allow-Headers",
            "Authorization, Content-Type, Content-Encoding, Last-Event-ID, Range, If-Range",
        ),
    )
    answer = Response(content_type="text/plain", status=204, headers=headers)
    return Route(method="OPTIONS", path=path, handler=lambda _: answer, summary="Allowed methods", public=True)


class _Dispatcher:
    """Checks requests, calls their handlers and answers."""

    def __init__(self, access: AccessControl, refusals: "_Refusals", limits: Limits, *, login: bool) -> None:
        self._access = access
        self._refusals = refusals
        self._limits = limits
        self._login = login
        self._received, self._memory = Budget(limits.together), Budget(limits.together)

    def callback(self, route: Route) -> Callable[..., object]:
        """Return the function that bottle calls for a request on this route."""

        def serve(**path: str) -> object:
            environ = bottle.request.environ
            is_large, admission = False, Admission(proof=Proof.NONE)
            session = unquote(path["session"]) if "session" in path else None
            try:
                check = self._check_head(route, environ)
                admission = check.admission
                is_known = environ[HAS_CREDENTIAL] = admission.proof is not Proof.NONE
                with self._memory.account(stranger=not is_known) as account:
                    try:
                        call = self._call(route, path, check, account)
                        question = self._unconfirmed(route, call)
                        answer = route.handler(call) if question is None else question
                        session = session or getattr(answer, "session", None)
                        return _respond(route, answer)
                    finally:
                        is_large = account.taken > _LARGE
            except DropflowError as error:
                return self._refuse(error, daliuge=route.daliuge, is_stranger=admission.proof is Proof.NONE)
            except Exception:  # noqa: BLE001 - every exception becomes an answer
                return self._refuse(_our_fault(route), daliuge=route.daliuge)
            finally:
                _log_operation(route, session, admission)
                if is_large:
                    # A graph that was refused, and errors with their frames, are cycles: the garbage collector would
                    # find them, with all that was unpacked, only after many more requests.
                    gc.collect()

        return serve

    def _check_head(self, route: Route, environ: Mapping[str, Any]) -> HeadCheck:
        check: HeadCheck = environ.get(HEAD_CHECK) or self.check_head(route, environ)
        if check.refused is not None:
            raise check.refused
        return check

    def check_head(self, route: Route, environ: Mapping[str, Any]) -> HeadCheck:
        """Return what is decided about a request on this route from its head. Never raises."""
        headers = headers_of(environ)
        if route.daliuge and headers.get("Origin") == _DALIUGE_CLIENT and "Sec-Fetch-Site" not in headers:
            del headers["Origin"]
        own = {"public": route.public, "cross_site": route.cross_site, "form": route.form, "users": route.users}
        limit = _IGNORED if _is_bodiless(route) else route.limit or self._limits.body
        try:
            admission = self._access.admit(headers, environ["REQUEST_METHOD"], target_of(environ), **own)
            if int(headers.get("Content-Length", 0)) > limit:
                raise too_large(limit)
        except DropflowError as error:
            return HeadCheck(refused=error)
        account = self._received.open(stranger=admission.proof is Proof.NONE)
        return HeadCheck(admission=admission, limit=limit, account=account)

    def outside(self, error: bottle.HTTPError) -> bytes:
        """Answer unknown paths and methods, only to callers that may enter: others must not learn which paths exist."""
        request = bottle.request
        status = error.status_code
        text = f"{request.method} {request.path} is not served here"
        refused: DropflowError = HttpError(status, error.body if status == 400 else text)
        if status >= 500:
            _log.error("request %s %s failed: %s", request.method, request.path, error.traceback)
            refused = InternalError("the server failed on this request", hint="its log has the details")
        try:
            self._access.admit(headers_of(request.environ), request.method, target_of(request.environ), form=True)
        except DropflowError as stranger:
            refused = stranger
            bottle.response.headers.pop("Allow", None)
        return self._refuse(refused, daliuge=False, is_stranger=True)

    def _call(self, route: Route, path: Mapping[str, str], check: HeadCheck, account: Account) -> Request:
        environ = bottle.request.environ
        return Request(
            path={name: unquote(value) for name, value in path.items()},
            query=_query(route),
            body=_body(route, check, self._limits.depth, account),
            headers=headers_of(environ),
            target=target_of(environ),
            proof=check.admission.proof,
            user=check.admission.user,
            is_gone=environ.get("waitress.client_disconnected", bool),
        )

    def _unconfirmed(self, route: Route, call: Request) -> Response | None:
        """Return the page that asks for the token, if a form has the cookie but not the page key."""
        if not route.form or call.proof is not Proof.COOKIE or bottle.request.method in SAFE_METHODS:
            return None
        fields, rules = posted_fields(call.body, call.headers.get("Content-Type", "")), self._access.rules
        if rules.is_own_form(dict(fields)) or (route.reads and rules.is_reading_form(dict(fields))):
            return None
        if wants_page(call.headers.get("Accept", "")):
            return Response(
                body=confirm_page(call.target, fields).encode(errors="replace"),
                content_type="text/html; charset=utf-8",
                status=403,
                headers=(("Content-Security-Policy", CONFIRM_POLICY),),
            )
        raise HttpError(
            403,
            "the form has no page key: the cookie of a browser permits reading only",
            hint="send the form from a page of this server",
        )

    def _refuse(self, error: DropflowError, *, daliuge: bool, is_stranger: bool = False) -> bytes:
        environ = bottle.request.environ
        try:
            target = target_of(environ)
        except HttpError:
            target = "/"
        answer = error_response(error, headers_of(environ), target=target, daliuge=daliuge, login=self._login)
        _head(answer.status, answer.content_type, answer.headers)
        if is_stranger and answer.status in _REFUSED:
            self._refusals.log(error)
        return answer.body


class _Refusals:
    """Logs requests that were refused before it was known who sent them: at most a few lines in each interval."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # for threads of the server
        self._interval, self._more = -1.0, 0
        self._logged: set[tuple[str, str]] = set()

    def log(self, error: DropflowError) -> None:
        """Log a refusal once in an interval for each address and reason; the next line has the number of the others."""
        request = bottle.request
        client = str(request.environ.get("REMOTE_ADDR"))
        with self._lock:
            interval = self._clock.monotonic() // _REFUSALS_SECONDS
            if interval != self._interval:
                self._interval = interval
                self._logged.clear()
            if (client, error.text) in self._logged or len(self._logged) == _MOST_REFUSALS:
                self._more += 1
                return
            self._logged.add((client, error.text))
            more, self._more = self._more, 0
        text = f"{request.method:.20} {request.path:.200}: {error.text:.200}"
        text += f" ({more} more refusals before it)" if more else ""
        about = {"credential": "refused", "client": client, "status": bottle.response.status_code}
        _AUDIT.info("%s", text, extra=about)


def _log_operation(route: Route, session: str | None, admission: Admission) -> None:
    """Log who asked for a change, the session, and the status of the answer. `_Refusals` logs requests of strangers."""
    request = bottle.request
    if admission.proof is Proof.NONE or route.reads or request.method in SAFE_METHODS:
        return
    about = {
        "session": session,
        "credential": _CREDENTIALS[admission.proof],
        "user": admission.user or None,
        "client": request.environ.get("REMOTE_ADDR"),
        "status": bottle.response.status_code,
    }
    _AUDIT.info("%s %s", request.method, request.path, extra=about)


def _our_fault(route: Route) -> InternalError:
    reference = secrets.token_hex(4)
    _log.exception("request %s %s failed, reference %s", route.method, route.path, reference)
    return InternalError(
        f"the server failed on this request (reference {reference})",
        hint="its log has the details; please report them",
    )


def _query(route: Route) -> Any:
    if route.query is None:
        return None
    fields = bottle.request.query
    if repeated := [name for name in fields if len(fields.getall(name)) > 1]:
        raise HttpError(400, f"the query cannot be used: {repeated[0]!r} is in it more than once")
    given = {name: fields.getunicode(name) for name in fields}
    try:
        return msgspec.convert(given, route.query, strict=False)
    except msgspec.ValidationError as error:
        raise _unusable("query", route.query, error, given) from error


def _unusable(what: str, kind: Any, error: Exception, given: Mapping[str, str]) -> HttpError:
    """Return the answer to a malformed query or body: the error in plain words, and the values that a field takes."""
    text, _, place = str(error).partition(" - at `")
    for name, words in _KINDS.items():
        text = text.replace(name, words)
    name = place.removeprefix("$.").rstrip("`")
    annotation = get_type_hints(kind, include_extras=True).get(name) if isinstance(kind, type) else None
    metas = [metadata for metadata in getattr(annotation, "__metadata__", ()) if isinstance(metadata, msgspec.Meta)]
    hint = next((meta.description for meta in metas if meta.description), "")
    if "matching regex" in text:
        text = f"{name!r} cannot be {given[name]!r:.80}" if name in given else f"{name!r} has another form"
    elif name:
        text = f"{name!r}: {text[:1].lower()}{text[1:]}"
    return HttpError(400, f"the {what} cannot be used: {text}", hint=hint)


def _is_bodiless(route: Route) -> bool:
    return route.method in _BODILESS and route.body is None


def _body(route: Route, check: HeadCheck, depth: int, account: Account) -> Any:
    signed = check.admission.digest
    if _is_bodiless(route):
        if signed is not None:
            read_body(0, signed=signed, account=account)
        return b""
    data = read_body(check.limit, signed=signed, account=account)
    if route.body is not None or route.json:
        check_depth(data, depth)
    if route.body is None:
        return data
    try:
        return msgspec.json.decode(data or b"{}", type=route.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unusable("body", route.body, error, {}) from error


def _respond(route: Route, answer: object) -> object:
    if not isinstance(answer, Response):
        fields = msgspec.to_builtins(answer) if answer is not None else {}
        answer = Response(body=msgspec.json.encode({"ok": True} | fields), status=route.status)
    body = answer.body
    if isinstance(body, Iterator):
        body = _begun(body)
    elif not isinstance(body, bytes | str) and not hasattr(body, "read"):
        body = msgspec.json.encode(body)
    _head(answer.status, answer.content_type, answer.headers)
    return body


class _Begun:
    """An iterator whose first chunk is read already, so that an early failure still becomes an answer with an error."""

    def __init__(self, first: Sequence[bytes], rest: Iterator[bytes]) -> None:
        self._chunks = chain(first, rest)
        self._rest = rest

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks

    def close(self) -> None:
        """Close the source of the chunks."""
        close = getattr(self._rest, "close", None)
        if close is not None:
            close()


def _begun(chunks: Iterator[bytes]) -> _Begun:
    first = next(chunks, None)
    return _Begun([] if first is None else [first], chunks)


def _head(status: int, content_type: str, headers: Sequence[tuple[str, str]]) -> None:
    response = bottle.response
    response.status = status
    response.content_type = content_type
    given = {name.lower() for name, _ in headers}
    for name, value in _SECURITY_HEADERS:
        if name.lower() not in given:
            response.set_header(name, value)
    for name, value in headers:
        is_address = name == "Location" and value.startswith("/")
        given_value = relative_address(value, target_of(bottle.request.environ)) if is_address else value
        response.add_header(name, given_value)
