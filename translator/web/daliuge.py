"""DALiuGE's own paths of a translator, for its tools; EAGLE's `gen_pgt` is among the pages.

Paths, fields and successful answers are those of DALiuGE 6.7; errors have correct statuses and texts. A request must
contain its graph: this translator has no library of graphs, so ``lg_name`` and ``pgt_name`` alone are refused.

DALiuGE deploys with ``GET /gen_pg``. A link on any page could do that with a person's cookie, so it deploys only for a
program that sends the token. A browser is redirected to the form that deploys; other programs use ``POST /gen_pg``.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta

from dropflow.api.addresses import ISLAND_PORT
from dropflow.api.bottle_app import error_response
from dropflow.api.error_pages import wants_page
from dropflow.api.request_bodies import check_depth
from dropflow.api.routes import FORM, Request, Response, Route, StreamSlots
from dropflow.errors import HttpError
from dropflow.failure import Problem, Severity, refuse_errors
from dropflow.formatting import plural
from dropflow.graph.drop_counts import MOST_PARTS
from dropflow.web.frame import redirect
from translator.options import DEFAULT_ALGORITHM
from translator.parameters import substitute
from translator.problem_codes import BAD_PARTITION, problem
from translator.web.forms import Form, form_of, whole_number
from translator.web.records import DeployRequest, TranslateQuery, TranslationInfo, TranslatorLimits
from translator.web.translator_service import TranslatorService

_UNLIMITED_MEMORY = 1000.0
"""The default of ``max_mem`` in DALiuGE, where no drop declares how much it needs: no limit."""

_SWARM, _LEADING = 40, 30
"""Defaults of ``swarm_size`` and ``topk``."""

_MOST_STEPS = 100_000
"""Steps of the local search that DALiuGE's parameters of a swarm may ask for."""
_MOST_PROCESSORS = 1_000_000
"""Processors of a part that DALiuGE's parameters may give."""

STEERING_FIELDS = (
    *("max_cpu", "max_mem", "deadline", "time_greedy", "ptype", "min_goal", "num_islands"),
    *("topk", "swarm_size"),
)
"""Fields that `steering` reads."""
_Apply = Callable[[float], dict[str, Any]]
_UNUSED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "par_label": ("", "Partition"),
        "num_parallel_task_streams": ("", "1"),
        "rmode": ("", "0", "-1"),
    }
)
"""Fields that have no effect here, with the default values of EAGLE and DALiuGE."""
_NO_ALGORITHM = "agl-1"
"""The algorithm that EAGLE sends when it does not know which one is chosen."""
_MOST_NODES = 1_000_000
"""Placeholders of nodes that a request may ask for."""
_MOST_ISLANDS = 10_000
"""Islands of a partition."""
_DEEPEST_LEVEL = 200
"""Levels of nested objects in parameters; deeper values get no names."""
_SMALL_BODY_BYTES = 64 * 1024
"""Bytes of the body of a request without a graph."""

# Options of planners, from fields with which DALiuGE steers its own.


def steering(given: Mapping[str, Any], problems: list[Problem], *, parts: int) -> dict[str, Any]:
    """Return options of `translator.options.PartitionOptions` from fields of DALiuGE.

    Parameters
    ----------
    given : mapping
        Values by the name of the field, as numbers or texts. Empty ones, and ``None`` and ``null``, count as absent.
    problems : list of Problem
        PT002 is added for each value that cannot be used.
    parts : int
        Number of parts: ``max_cpu`` limits each of them, and `dop` all of an island together.
    """
    options: dict[str, Any] = {}
    for field, (low, high, apply) in _FIELDS.items():
        value = given.get(field)
        if value is None or (isinstance(value, str) and value.strip() in ("", "None", "null")):
            continue
        number = _number(value)
        if number is None or not low <= number <= high:
            text = f"{field} is {str(value)[:40]!r}, expected a number from {low:g} to {high:g}"
            problems.append(problem(BAD_PARTITION, text, where=field, hint="leave it out for the default"))
        else:
            options |= apply(number)
    swarm, leading = options.pop("swarm", None), options.pop("leading", None)
    if swarm is not None or leading is not None:
        steps = (_SWARM if swarm is None else swarm) * (_LEADING if leading is None else leading)
        if (swarm or _SWARM, leading or _LEADING) != (_SWARM, _LEADING):
            options["steps"] = min(steps, _MOST_STEPS)
    if "dop" in options:
        inside = math.ceil(parts / options.get("islands", 1))
        options["dop"] = min(options["dop"] * max(inside, 1), _MOST_PROCESSORS)
    return options


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _memory(number: float) -> dict[str, Any]:
    return {} if number in (0, _UNLIMITED_MEMORY) else {"memory": number}


_FIELDS: Mapping[str, tuple[float, float, _Apply]] = MappingProxyType(
    {
        "max_cpu": (0, _MOST_PROCESSORS, lambda number: {"dop": int(number)}),
        "max_mem": (0, 1e18, _memory),
        "deadline": (1e-9, 1e12, lambda number: {"deadline": number}),
        "time_greedy": (0, 100, lambda number: {"greediness": number}),
        "ptype": (0, 1_000_000, lambda number: {"method": "recursive" if number else "best"}),
        "min_goal": (0, 1, lambda number: {"goal": "moved" if number else "cut"}),
        "num_islands": (0, 10_000, lambda number: {"islands": max(int(number), 1)}),
        "topk": (1, 10_000, lambda number: {"leading": int(number)}),
        "swarm_size": (1, 10_000, lambda number: {"swarm": int(number)}),
    }
)


# Reads the form of EAGLE. Fields that cannot be used become findings, all of them at once.

_USED = frozenset(
    {
        "json_data",
        "lg_name",
        "algo",
        "num_par",
        "max_load_imb",
        *STEERING_FIELDS,
    }
)
_YES, _NO = frozenset({"true", "1", "yes", "on"}), frozenset({"", "false", "0", "no", "off", "none", "null"})


def read_eagle(form: Form) -> tuple[bytes, TranslateQuery, tuple[Problem, ...]]:
    """Return the graph in a form, how to translate it, and findings about its other fields.

    Parameters
    ----------
    form : Form
        As EAGLE posts it to ``gen_pgt``.

    Returns
    -------
    bytes
        The graph.
    TranslateQuery
        How to translate it.
    tuple of Problem
        PT002 (error) for each field that cannot be used, LG092 (a note) for each that has no effect.

    Raises
    ------
    HttpError
        422: the form has no graph.
    """
    graph_name = form.text("lg_name") or form.files.get("json_data", "")
    given = {"json_data": form.fields.get("json_data", b"").strip(), "lg_name": graph_name}
    missing = [name for name, value in given.items() if not value]
    if missing:
        names = " and ".join(missing)
        raise HttpError(
            422, f"the form has no {names}", hint="EAGLE sends both: translate from there, or upload a file"
        )
    problems: list[Problem] = []
    parts = whole_number(form, "num_par", 1, least=1, most=MOST_PARTS, problems=problems)
    balance = whole_number(form, "max_load_imb", 90, least=-(10**6), most=10**6, problems=problems)
    steered = steering({name: form.text(name) for name in STEERING_FIELDS}, problems, parts=parts)
    algorithm = form.text("algo") or DEFAULT_ALGORITHM
    if algorithm == _NO_ALGORITHM:
        text = f"EAGLE did not send which algorithm was chosen (it sent {_NO_ALGORITHM}): {DEFAULT_ALGORITHM} is used"
        problems.append(problem("LG092", text, where="algo", severity=Severity.INFO))
        algorithm = DEFAULT_ALGORITHM
    test = form.text("test").lower()
    for name, value in form.fields.items():
        if name == "test" and test in _YES | _NO:
            continue
        usual = _UNUSED.get(name)
        if name not in _USED and (usual is None or form.text(name) not in usual):
            shown = value[:40].decode(errors="replace")
            text = f"the field {name[:40]!r} ({shown!r}) has no effect here"
            problems.append(problem("LG092", text, where=name[:40], severity=Severity.INFO))
    query = TranslateQuery(
        name=graph_name[-200:],
        algorithm=algorithm[:40],
        parts=parts,
        imbalance=imbalance_of(balance),
        rehearsal=test in _YES,  # EAGLE's "Test PGT"
        **steered,
    )
    content = _in_utf8(form.fields["json_data"], problems)
    return content, query, tuple(problems)


def _in_utf8(content: bytes, problems: list[Problem]) -> bytes:
    """Return a graph in UTF-8; note if it was not.

    A browser posts the form of a page without a charset, such as EAGLE's behind a plain web server, in Windows-1252.
    """
    if content.isascii():  # nearly all, and without a copy
        return content
    try:
        content.decode()
    except UnicodeDecodeError:
        with contextlib.suppress(UnicodeDecodeError):  # LG001 reports a file that is not text at all
            content = content.decode("cp1252").encode()
            text = (
                "the graph came in Windows-1252 and not in UTF-8, as from a page without a charset: it is read as that"
            )
            problems.append(problem("LG092", text, where="json_data", severity=Severity.INFO))
    return content


def imbalance_of(balance: int) -> float:
    """Return DALiuGE's ``max_load_imb`` in per cent.

    METIS may exceed the mean by ``max(1, 101 - balance)`` thousandths.
    """
    return min(max(1, 101 - balance), 10_000) / 10


class _GenPg(msgspec.Struct, frozen=True, kw_only=True):
    """The query of ``gen_pg``; any value of `dlg_mgr_deploy` asks for a deployment."""

    pgt_id: str
    dlg_mgr_deploy: str | None = None
    dlg_mgr_url: str = ""
    dlg_mgr_host: str = ""
    dlg_mgr_port: int = ISLAND_PORT
    tpl_nodes_len: Annotated[int, Meta(ge=0, le=_MOST_NODES)] = 0

    @property
    def manager(self) -> str:
        """Address of the manager; empty when none is named."""
        return self.dlg_mgr_url or (f"http://{self.dlg_mgr_host}:{self.dlg_mgr_port}" if self.dlg_mgr_host else "")


class _GenPgSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The body of ``gen_pg_spec``. The manager is not called: its nodes are in the list."""

    pgt_id: str
    manager_host: str = ""
    node_list: tuple[str, ...] = ()
    tpl_nodes_len: Annotated[int, Meta(ge=0, le=_MOST_NODES)] = 1


def daliuge_routes(service: TranslatorService, streams: StreamSlots) -> list[Route]:
    """Return DALiuGE's routes. Those that may deploy need the token.

    Requests that wait for a translation take a place of `streams`, so that requests without a credential cannot hold
    all threads.
    """
    handlers = _DaliugeHandlers(service, streams)
    route = partial(Route, daliuge=True, tag="DALiuGE")
    form = partial(route, method="POST", public=True, limit=service.limits.body, takes=FORM, gives="application/json")
    methods = partial(
        route, method="GET", handler=handlers.methods, public=True, summary="How graphs can be deployed from here."
    )
    gen_pg = partial(route, path="/gen_pg", query=_GenPg)
    return [
        form(path="/unroll", handler=handlers.unroll, summary="The logical graph in the form, as a list of drops."),
        form(path="/partition", handler=handlers.partition, summary="The list of drops in the form, partitioned."),
        form(
            path="/unroll_and_partition",
            handler=handlers.unroll_and_partition,
            summary="The logical graph in the form, as a list of drops, partitioned.",
        ),
        form(
            path="/map", handler=handlers.map_to_nodes, summary="The list of drops in the form, with nodes and islands."
        ),
        form(
            path="/lg_fill",
            handler=handlers.fill,
            summary="The logical graph in the form, with values for its placeholders.",
        ),
        gen_pg(
            method="GET",
            handler=handlers.gen_pg,
            summary="The physical graph of a translation; or deploy it, with the token.",
        ),
        gen_pg(method="POST", handler=handlers.deploy, summary="Deploy a translation.", limit=_SMALL_BODY_BYTES),
        route(
            method="POST",
            path="/gen_pg_spec",
            handler=handlers.gen_pg_spec,
            summary="The physical graph of a translation and its roots, as JSON inside a JSON text.",
            body=_GenPgSpec,
            public=True,
        ),
        methods(path="/api/submission_method"),
        methods(path="/submission_methods"),
    ]


class _DaliugeHandlers:
    """The handlers of the routes."""

    def __init__(self, service: TranslatorService, streams: StreamSlots) -> None:
        self._service = service
        self._streams = streams

    def unroll(self, call: Request) -> Response:
        form = form_of(call)
        refuse_errors(_unroll_findings(form))
        query = TranslateQuery(name=_name(form, "lg_name"), prefix=form.text("oid_prefix")[:100], algorithm="none")
        return self._drops(_content(form, "lg"), query)

    def fill(self, call: Request) -> Response:
        return _fill(form_of(call), self._service.limits)

    def partition(self, call: Request) -> Response:
        form = form_of(call)
        return self._partitioned(form, _content(form, "pgt"), _name(form, "pgt_name"))

    def unroll_and_partition(self, call: Request) -> Response:
        form = form_of(call)
        refuse_errors(_unroll_findings(form))
        return self._partitioned(form, _content(form, "lg"), _name(form, "lg_name"))

    def map_to_nodes(self, call: Request) -> Response:
        form = form_of(call)
        problems: list[Problem] = []
        count = whole_number(form, "num_islands", 1, least=0, most=MOST_PARTS, problems=problems)
        hosts = [name.strip() for name in form.text("nodes").split(",") if name.strip()]
        if not hosts:
            hint = "name the island's host, then those of the nodes, with commas between"
            problems.append(problem(BAD_PARTITION, "no nodes are named", where="nodes", hint=hint))
        elif len(hosts) <= count:
            text = f"{plural(len(hosts), 'host')} cannot be {plural(count, 'island')} and a node"
            problems.append(
                problem(BAD_PARTITION, text, where="nodes", hint="islands come first, then at least one node")
            )
        refuse_errors(problems)
        query = TranslateQuery(name=_name(form, "pgt_name"))
        return self._drops(_content(form, "pgt"), query, hosts[count:], hosts[:count])

    def gen_pg(self, call: Request) -> Response:
        query: _GenPg = call.query
        if query.dlg_mgr_deploy is None:
            manager = query.manager
            nodes = self._service.deployer.alive(manager) if manager else _placeholders(query.tpl_nodes_len)
            return Response(body=self._service.export(query.pgt_id, nodes=nodes))
        if call.proof.is_deliberate:
            return redirect(self._deployed(query), status=307)
        if wants_page(call.headers.get("Accept", "")):
            identity, manager = self._service.get(query.pgt_id).id, self._service.deployer.known(query.manager)
            return redirect(f"/translations/{identity}?manager={quote(manager, safe='')}#run")
        error = HttpError(
            405,
            "a GET deploys only for a program that sends the token",
            hint="send Authorization: Bearer TOKEN, or POST to the same address",
        )
        answer = error_response(error, call.headers, target="/gen_pg", daliuge=True)
        headers = (*answer.headers, ("Allow", "POST"))
        return Response(status=answer.status, content_type=answer.content_type, headers=headers, body=answer.body)

    def deploy(self, call: Request) -> Response:
        return redirect(self._deployed(call.query))

    def _deployed(self, query: _GenPg) -> str:
        """Start a session, in one part for each node unless the graph is partitioned; return its page."""
        spread = self._service.get(query.pgt_id).parts == 1
        return self._service.deploy(query.pgt_id, DeployRequest(manager=query.manager, spread=spread)).url

    def gen_pg_spec(self, call: Request) -> Response:
        body: _GenPgSpec = call.body
        nodes = body.node_list or _placeholders(body.tpl_nodes_len)
        islands = (body.manager_host,) if body.manager_host else ()
        return Response(body=self._service.export(body.pgt_id, nodes=nodes, islands=islands, form="spec"))

    def methods(self, _call: Request) -> Response:
        return Response(body={"methods": ["SERVER"] if self._service.deployer.managers else []})

    def _partitioned(self, form: Form, content: bytes, name: str) -> Response:
        problems: list[Problem] = []
        parts = whole_number(form, "num_partitions", 1, least=1, most=MOST_PARTS, problems=problems)
        islands = max(whole_number(form, "num_islands", 1, least=0, most=_MOST_ISLANDS, problems=problems), 1)
        check_depth(form.fields.get("algo_params", b""), self._service.limits.depth, what="algo_params")
        given = _algorithm_parameters(form, problems)
        balance = _balance(given, problems)
        steered = steering({"num_islands": islands} | given, problems, parts=parts)
        refuse_errors(problems)
        query = TranslateQuery(
            name=name,
            algorithm=form.text("algorithm")[:40] or DEFAULT_ALGORITHM,
            parts=parts,
            imbalance=imbalance_of(balance),
            prefix=form.text("oid_prefix")[:100],
            **steered,
        )
        info = self._translated(content, query)
        made = info.report.measures.parts if info.report and info.report.measures else 1
        # Placeholders are numbered as DALiuGE does: islands first, then nodes.
        names = _placeholders(islands + made)
        return Response(body=self._service.export(info.id, nodes=names[islands:], islands=names[:islands]))

    def _drops(
        self, content: bytes, query: TranslateQuery, nodes: Sequence[str] = (), islands: Sequence[str] = ()
    ) -> Response:
        """Return the list of drops of a graph, which is translated while the client waits."""
        info = self._translated(content, query)
        return Response(body=self._service.export(info.id, nodes=nodes, islands=islands, has_plan=bool(nodes)))

    def _translated(self, content: bytes, query: TranslateQuery) -> TranslationInfo:
        """Translate a graph and wait for the result."""
        with self._streams.slot():
            return self._service.result(self._service.submit(content, query).id)


def _name(form: Form, field: str) -> str:
    return form.text(field)[-200:]


def _content(form: Form, kind: str) -> bytes:
    content = form.fields.get(f"{kind}_content", b"")
    if content.strip():
        return content
    if form.text(f"{kind}_name"):
        raise HttpError(404, "this translator keeps no library of graphs", hint=f"send the graph as {kind}_content")
    raise HttpError(400, f"the form has no {kind}_content", hint="send the graph in that field")


def _unroll_findings(form: Form) -> list[Problem]:
    problems = []
    if form.text("default_app"):
        problems.append(problem(BAD_PARTITION, "a default application is not supported", where="default_app"))
    if form.text("zero_run").lower() not in ("", "false", "0", "none"):
        problems.append(problem(BAD_PARTITION, "runs without work are not supported", where="zero_run"))
    return problems


def _algorithm_parameters(form: Form, problems: list[Problem]) -> dict[str, Any]:
    """Return the parameters of the algorithm in the form."""
    try:
        return msgspec.json.decode(form.fields.get("algo_params") or b"{}", type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        problems.append(problem(BAD_PARTITION, f"algo_params cannot be used: {error}", where="algo_params"))
        return {}


def _balance(given: Mapping[str, Any], problems: list[Problem]) -> int:
    """Return the balance in `algo_params`, as DALiuGE's percentage."""
    try:
        return int(given.get("max_load_imb", 90))
    except (ValueError, TypeError, OverflowError) as error:
        problems.append(problem(BAD_PARTITION, f"algo_params cannot be used: {error}", where="algo_params"))
        return 90


def _placeholders(number: int) -> tuple[str, ...]:
    return tuple(f"#{place}" for place in range(number))


class _Limited(dict[str, Any]):
    """Values that may be used so often that they have `most` bytes in all: a small form could ask for a huge answer."""

    def __init__(self, values: Iterable[tuple[str, Any]], most: int) -> None:
        super().__init__(values)
        self._sizes: dict[str, int] = {}
        self._most = self._left = most

    def __getitem__(self, name: str) -> Any:
        """Return a value, and count its bytes."""
        value = super().__getitem__(name)
        if name not in self._sizes:
            self._sizes[name] = len(msgspec.json.encode(value))
        self._left -= self._sizes[name]
        if self._left < 0:
            raise HttpError(413, f"values in place of placeholders have more than {self._most:,} bytes")
        return value


def _fill(form: Form, limits: TranslatorLimits) -> Response:
    content, parameters = _content(form, "lg"), form.fields.get("parameters") or b"{}"
    check_depth(content, limits.depth, what="lg_content")
    check_depth(parameters, limits.depth, what="parameters")
    try:
        values = msgspec.json.decode(parameters, type=dict[str, Any])
        graph = msgspec.json.decode(content)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise HttpError(400, f"the form has a field that is not JSON: {error}") from error
    try:
        return Response(body=substitute(graph, _Limited(_flat(values, "", 0), limits.body), set(), tilde=True))
    except RecursionError as error:
        raise HttpError(400, "the graph is nested too deeply") from error


def _flat(values: Mapping[str, Any], before: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield every value with its name; values in objects have names such as ``outer.inner``."""
    for name, value in values.items():
        yield f"{before}{name}", value
        if isinstance(value, dict) and depth < _DEEPEST_LEVEL:
            yield from _flat(value, f"{before}{name}.", depth + 1)
