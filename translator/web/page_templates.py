"""The templates of the translator's pages, ``translator/web/templates``, and the names that they use."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from dropflow.api.content_disposition import attachment
from dropflow.api.logs import LogPage, LogQuery, LogTextQuery, ManagerLog, log_text
from dropflow.api.openapi import Request, Response, Route, StreamSlots, page_with_lines
from dropflow.errors import NotFoundError
from dropflow.failure import Problem, Severity
from dropflow.formatting import plural
from dropflow.sessions.options import AnnotatedField, SubmitOptions, meta_of
from dropflow.version import __version__
from dropflow.web.frame import LogSource, PageLayout, PageTemplates, ServerLabel, page_response, shown_log
from dropflow.web.places import Places
from translator.options import PartitionOptions
from translator.problem_codes import problem
from translator.template import TemplateParameter
from translator.web.forms import Form

__all__ = [
    "FindingGroup",
    "finding_groups",
    "findings_by_severity",
    "log_routes",
    "noted_planning",
    "noted_submission",
    "posted_submission",
    "translator_templates",
]


# The log of the translator itself: its page, and what the script of the page asks for. All of it
# needs the login.


def log_routes(log: ManagerLog, templates: PageTemplates, streams: StreamSlots) -> list[Route]:
    """Return the routes of the log of the translator, with the paths of those of managers."""
    name = quote(log.name, safe="")
    source = LogSource(
        name=log.name,
        about="What the translator wrote, in the order of time (UTC)",
        crumbs=(("Translate", "/"),),
        here="Log",
        page=f"/nodes/{name}",
        api=f"/api/v1/nodes/{name}",
        origin="Logger",
        is_live=True,
    )

    def check(call: Request) -> None:
        if call.path["node"] != log.name:
            raise NotFoundError(f"this is {log.name}, not {call.path['node']}", hint="ask a manager for other logs")

    def page(call: Request) -> Response:
        check(call)
        shown, twin = shown_log(source, call.query, log.page(call.query))
        return page_response(templates.render("log", twin=twin, **shown), call)

    def lines(call: Request) -> LogPage:
        check(call)
        return page_with_lines(log.page, call.query, streams, call.is_gone)

    def text(call: Request) -> Response:
        check(call)
        headers = (attachment(f"{log.name}.log"),)
        return Response(body=log_text(log.page, call.query), content_type="text/plain", headers=headers)

    route = partial(Route, method="GET", query=LogQuery, tag="translator")
    return [
        route(path="/nodes/{node}/log", handler=page, summary="The log of the translator.", gives="text/html"),
        route(path="/nodes/{node}/log.json", handler=lines, summary="Its log as JSON.", answer=LogPage),
        route(path="/api/v1/nodes/{node}/log", handler=lines, summary="A page of its log.", answer=LogPage),
        route(
            path="/api/v1/nodes/{node}/log/text",
            handler=text,
            summary="Its log as text.",
            query=LogTextQuery,
            gives="text/plain",
        ),
    ]


# Findings for a page: those of one kind together, so that one mistake in many nodes is read once.

_WORDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


class FindingGroup(msgspec.Struct, frozen=True):
    """Findings with one code, severity and hint.

    Attributes
    ----------
    code, hint : str
        What they share.
    severity : Severity
        What they share, too.
    text : str
        What is wrong, if it is the same everywhere; else empty.
    places : tuple of (str, str)
        Where, and what is wrong there if that differs; each pair once, in the order of the findings.
    """

    code: str
    severity: Severity
    hint: str
    text: str
    places: tuple[tuple[str, str], ...]


def finding_groups(problems: Sequence[Problem]) -> list[FindingGroup]:
    """Return findings by code, severity and hint, in the order of their first ones."""
    alike: dict[tuple[str, Severity, str], list[Problem]] = {}
    for one in problems:
        alike.setdefault((one.code, one.severity, one.hint), []).append(one)
    found = []
    for (code, severity, hint), some in alike.items():
        texts = {problem.text for problem in some}
        text = some[0].text if len(texts) == 1 else ""
        places = dict.fromkeys((problem.where, "" if text else problem.text) for problem in some)
        found.append(FindingGroup(code, severity, hint, text, tuple(places)))
    return found


def findings_by_severity(problems: Sequence[Problem]) -> list[tuple[str, list[FindingGroup]]]:
    """Return findings in groups by severity, the worst first, with a heading for each severity that occurs."""
    found = {severity: [one for one in problems if one.severity is severity] for severity in _WORDS}
    return [(plural(len(some), _WORDS[severity]), finding_groups(some)) for severity, some in found.items() if some]


def translator_templates(places: Places, name: str) -> PageTemplates:
    """Return the templates; their pages link to other servers, and to the log of this one, `name`."""
    log = f"/nodes/{quote(name, safe='')}/log"
    navigation = (("Translate", "/"), ("Translations", "/translations"), ("Log", log))
    label = ServerLabel(aside="translator", footer=f"dropflow {__version__}")
    layout = PageLayout(server=lambda _: label, navigation=navigation, style_sheets=("translator.css",), places=places)
    names: dict[str, Any] = {"format_shape": _format_shape, "findings_by_severity": findings_by_severity}
    names |= {"quoted": partial(quote, safe="")}
    names |= {"is_numeric_input": _is_numeric_input, "range_text": _range_text}
    return PageTemplates(Path(__file__).with_name("templates"), layout=layout, names=names)


def _format_shape(lengths: tuple[int, ...]) -> str:
    """Return the shape of an index space: ``4 x 100``, or ``1``."""
    return " \N{MULTIPLICATION SIGN} ".join(f"{length:,}" for length in lengths) or "1"


def _is_numeric_input(parameter: TemplateParameter, value: str) -> bool:
    """Whether a browser can ask for the parameter as a number: not if its value is an expression."""
    if parameter.type not in ("Integer", "Float"):
        return False
    try:
        return not value or isfinite(float(value))
    except ValueError:
        return False


def _range_text(parameter: TemplateParameter) -> str:
    """Return the range of a number: ``, 1 to 64``."""
    low, high = parameter.minimum, parameter.maximum
    if low is not None and high is not None:
        return f", {low:g} to {high:g}"
    return f", from {low:g}" if low is not None else f", up to {high:g}" if high is not None else ""


# The part of the form of deployment that says how a session runs, and the notes of a session that is
# cloned.

_MOMENT = "%Y-%m-%dT%H:%M"


class OptionField(msgspec.Struct, frozen=True, kw_only=True):
    """One option of a session in the form of deployment: what a browser needs to ask for it.

    `kind` is the type of the field in HTML; `value` is its text, or ``yes`` for a box that is checked.
    """

    name: str
    title: str
    kind: str
    value: str
    least: float | None = None
    most: float | None = None
    placeholder: str = ""

    @property
    def is_box(self) -> bool:
        """Whether it is a box to check."""
        return self.kind == "checkbox"


def option_fields(options: SubmitOptions) -> tuple[OptionField, ...]:
    """Return the fields of the form for these options, as `dropflow.sessions.options` annotates them."""
    return tuple(_option_field(name, one, getattr(options, name)) for name, one in meta_of(SubmitOptions).items())


def _option_field(name: str, field: AnnotatedField, value: Any) -> OptionField:
    if field.kind is bool:
        return OptionField(name=name, title=str(field.meta.title), kind="checkbox", value="yes" if value else "")
    if field.special == "walltime":
        text = datetime.fromtimestamp(value, UTC).strftime(_MOMENT) if value else ""
        return OptionField(name=name, title=str(field.meta.title), kind="datetime-local", value=text)
    is_optional = field.kind is float
    return OptionField(
        name=name,
        title=str(field.meta.title),
        kind="number",
        value="" if is_optional and not value else f"{value:g}" if is_optional else str(value),
        least=field.meta.ge,
        most=field.meta.le,
        placeholder="nothing" if is_optional else "",
    )


def posted_submission(form: Form, known: SubmitOptions, found: list[Problem]) -> SubmitOptions:
    """Return the options in the form of deployment; `known` if the form does not have them.

    PT002 is added to `found` for each field that cannot be used.
    """
    if form.text("options") != "yes":
        return known
    return SubmitOptions(
        **{name: _posted(form.text(name), name, one, found) for name, one in meta_of(SubmitOptions).items()}
    )


def _posted(text: str, name: str, field: AnnotatedField, found: list[Problem]) -> Any:
    """Return the value of one option."""
    if field.kind is bool:
        return text == "yes"
    if not text:
        return field.default
    try:
        if field.special == "walltime":
            return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
        return getattr(msgspec.convert({name: text}, SubmitOptions, strict=False), name)
    except (ValueError, msgspec.ValidationError):
        most = "" if field.meta.le is None else f" to {field.meta.le:,}"
        is_time = field.special == "walltime"
        wanted = (
            "a date and time such as 2027-01-31T02:30, in UTC" if is_time else f"a number from {field.meta.ge}{most}"
        )
        wrong = f"{name} is {text[:40]!r}, expected {wanted}"
        found.append(problem("PT002", wrong, where=name, hint=f"leave it empty for {field.default:g}"))
        return field.default


def noted_submission(form: Form, now: float, found: list[Problem]) -> SubmitOptions:
    """Return the options of the session that a form clones, without a walltime that has passed."""
    text = form.text("submission")
    if not text:
        return SubmitOptions()
    try:
        options = msgspec.json.decode(text, type=SubmitOptions)
    except msgspec.MsgspecError as error:
        found.append(problem("PT002", f"the options of the session cannot be read: {error}", where="submission"))
        return SubmitOptions()
    return msgspec.structs.replace(options, until=0.0) if options.until <= now else options


def noted_planning(form: Form, found: list[Problem]) -> dict[str, object]:
    """Return the options of the plan of the session that a form clones, by their names; empty if there are none."""
    text = form.text("planning")
    if not text:
        return {}
    try:
        plan = msgspec.json.decode(text, type=PartitionOptions)
    except msgspec.MsgspecError as error:
        found.append(problem("PT002", f"the options of the plan cannot be read: {error}", where="planning"))
        return {}
    return {name: value for name, value in msgspec.structs.asdict(plan).items() if name != "parts"}
