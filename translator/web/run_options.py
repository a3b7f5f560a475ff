"""The part of the form of deployment that says how a session runs, and the notes of a session that is cloned."""

from datetime import UTC, datetime

import msgspec

from dropflow.problems import Problem
from dropflow.rest.submit_options import SubmitOptions
from translator.problem_codes import problem
from translator.web.form_numbers import whole_number
from translator.web.forms import Form
from translator.web.records import PlanFields

__all__ = ["noted_planning", "noted_submission", "posted_submission", "until_text"]

_MOMENT = "%Y-%m-%dT%H:%M"


class _NotedPlan(PlanFields, frozen=True, kw_only=True):
    """The options of a plan as `dropflow.graph.planning_note` writes them, and PlanFields has them."""

    algorithm: str = ""
    imbalance: float = 1.0
    seed: int = 0


def posted_submission(form: Form, known: SubmitOptions, found: list[Problem]) -> SubmitOptions:
    """Return the options in the form of deployment; `known` if the form does not have them.

    PT002 is added to `found` for each field that cannot be used.
    """
    if form.text("options") != "yes":
        return known
    return SubmitOptions(
        replicas=whole_number(form, "replicas", 1, least=1, most=100, found=found),
        protect=_seconds(form, found),
        until=_until(form, found),
        infrastructure_retries=whole_number(form, "infrastructure_retries", 5, least=0, most=1_000_000, found=found),
        join=form.text("join") == "yes",
        fuse=form.text("fuse") == "yes",
        check=form.text("check") == "yes",
    )


def until_text(until: float) -> str:
    """Return a walltime as a browser's field of date and time has it, in UTC; empty for none."""
    return datetime.fromtimestamp(until, UTC).strftime(_MOMENT) if until else ""


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
    """Return fields of `translator.web.records.TranslateQuery` for the plan of the session that a form clones."""
    text = form.text("planning")
    if not text:
        return {}
    try:
        plan = msgspec.json.decode(text, type=_NotedPlan)
    except msgspec.MsgspecError as error:
        found.append(problem("PT002", f"the options of the plan cannot be read: {error}", where="planning"))
        return {}
    return {name: value for name, value in msgspec.structs.asdict(plan).items() if name != "algorithm" or value}


def _seconds(form: Form, found: list[Problem]) -> float:
    text = form.text("protect") or "0"
    try:
        return msgspec.convert({"protect": text}, SubmitOptions, strict=False).protect
    except msgspec.ValidationError:
        wrong = f"protect is {text[:40]!r}, expected seconds"
        found.append(problem("PT002", wrong, where="protect", hint="leave it empty for none"))
        return 0.0


def _until(form: Form, found: list[Problem]) -> float:
    text = form.text("until")
    if not text:
        return 0.0
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        wrong = f"until is {text[:40]!r}, expected a date and time such as 2027-01-31T02:30, in UTC"
        found.append(problem("PT002", wrong, where="until", hint="leave it empty for none"))
        return 0.0
