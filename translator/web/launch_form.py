"""The form that runs a translation: values of its parameters, its partition, and how its session runs."""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from math import isfinite
from typing import Any

import msgspec

from dropflow.failure import Problem
from dropflow.formatting import few, with_plain_lines
from dropflow.session_options import AnnotatedField, SubmitOptions, meta_of
from dropflow.web.views import VALUE, FormField
from translator.options import DEFAULT_ALGORITHM
from translator.parameters import TemplateForm, value_text
from translator.plan.registry import ALGORITHMS
from translator.problem_codes import BAD_PARTITION, problem
from translator.template import TemplateParameter
from translator.web.forms import Form
from translator.web.records import TranslationInfo

_ALGORITHMS = (DEFAULT_ALGORITHM, *(name for name in ALGORITHMS if name != DEFAULT_ALGORITHM))
_MOST_VALUES = 300
"""Values in a form; `translator.web.forms` allows a few more fields."""
_MOST_USES = 3
"""Uses of a parameter that its field lists."""
_MOMENT = "%Y-%m-%dT%H:%M"
_PLAIN = re.compile(r"-?([0-9]+(\.[0-9]+)?|\.[0-9]+)([eE][-+]?[0-9]+)?")


class FieldGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of the form that are shown together, under a title, which opens them if not `is_open`."""

    title: str
    fields: Sequence[FormField]
    is_open: bool = True


def launch_groups(
    info: TranslationInfo,
    submission: SubmitOptions,
    *,
    managers: tuple[str, ...],
    manager: str,
    session: str,
) -> list[FieldGroup]:
    """Return the fields of the form that runs a translation, as they are filled in first."""
    form = (info.report.form if info.report is not None else None) or TemplateForm()
    parts = info.report.measures.parts if info.report is not None and info.report.measures is not None else info.parts
    number = partial(FormField, kind="number", is_required=True)
    where = (
        FormField(name="manager", title="Manager", value=manager or next(iter(managers), ""), choices=managers),
        FormField(name="session", title="Session", value=session, placeholder="named after the graph"),
    )
    named, usual = ("", *form.configurations), "none" if form.configuration else "as it is"
    chosen = FormField(
        name="configuration", title="Configuration", value=form.configuration, placeholder=usual, choices=named
    )
    partition = (
        FormField(name="algorithm", title="Algorithm", value=info.algorithm, choices=_ALGORITHMS),
        number(name="parts", title="Parts", value=str(info.parts), least=1),
        number(
            name="imbalance", title="Imbalance, per cent", value=_number(info.imbalance), least=0, most=1000, step="any"
        ),
    )
    words = "When it runs, one part for each node that is alive"
    spread = FormField(name="spread", title=words, kind="checkbox", value="yes" if parts == 1 else "")
    values = [_value_field(parameter, form) for parameter in form.parameters[:_MOST_VALUES]]
    nodes = [_value_field(node, form) for node in form.nodes[: _MOST_VALUES - len(values)]]
    is_given = any(node.name in form.given for node in form.nodes)
    options = option_fields(submission)
    return [
        FieldGroup(title="Session", fields=where if managers else ()),
        FieldGroup(title="Parameters", fields=(*((chosen,) if form.configurations else ()), *values)),
        FieldGroup(title="Code and values of nodes", fields=nodes, is_open=is_given),
        FieldGroup(title="Partition", fields=(*partition, *((spread,) if managers else ()))),
        FieldGroup(title="Options", fields=options if managers else (), is_open=submission != SubmitOptions()),
    ]


def _value_field(parameter: TemplateParameter, form: TemplateForm) -> FormField:
    """Return the field for a parameter. A number is asked for as a text if its value is an expression."""
    text, low, high = form.shown(parameter), parameter.minimum, parameter.maximum
    limits = [f"from {_number(low)}"] if low is not None and high is None else []
    limits += [f"{_number(low)} to {_number(high)}"] if low is not None and high is not None else []
    limits += [f"up to {_number(high)}"] if low is None and high is not None else []
    used = f"used by {few(parameter.used_in, _MOST_USES)}"
    is_number = parameter.type in ("Integer", "Float") and _is_plain_number(text)
    return FormField(
        name=f"{VALUE}{parameter.name}",
        title=parameter.name,
        value=text,
        kind="number"
        if is_number
        else "lines"
        if "\n" in with_plain_lines(text) or parameter.name.endswith(".func_code")
        else "text",
        note=", ".join((parameter.type, *limits)),
        help=tuple(line for line in (parameter.description, used if parameter.used_in else "") if line),
        least=low,
        most=high,
        step=("1" if parameter.type == "Integer" else "any") if is_number else "",
        placeholder="to be chosen",
        choices=parameter.options or (("true", "false") if parameter.type == "Boolean" else ()),
        is_required=parameter.value is None and bool(parameter.used_in) and not form.configurations,
    )


def _number(value: float) -> str:
    """Return a number with all its digits."""
    return str(value).removesuffix(".0")


def _is_plain_number(text: str) -> bool:
    """Return whether browsers show a text in a field for numbers: they show another one as empty."""
    return not text or (_PLAIN.fullmatch(text) is not None and isfinite(float(text)))


def posted_values(form: Form, template: TemplateForm) -> dict[str, str | int | float | bool | None]:
    """Return the posted values that are not those of the graph, or of its configuration, with lines as Python has."""
    posted: dict[str, str | int | float | bool | None] = {}
    for field in (*template.parameters, *template.nodes):
        known = with_plain_lines(value_text(field.value).strip())
        text = with_plain_lines(form.text(f"{VALUE}{field.name}", template.shown(field)))
        if text != known:
            posted[field.name] = text
    return posted


def option_fields(options: SubmitOptions) -> tuple[FormField, ...]:
    """Return the fields of the form for these options, as `dropflow.session_options` annotates them."""
    fields = [
        _option_field(name, annotated, getattr(options, name)) for name, annotated in meta_of(SubmitOptions).items()
    ]
    return tuple(sorted(fields, key=lambda field: field.kind == "checkbox"))


def _option_field(name: str, field: AnnotatedField, value: Any) -> FormField:
    named: dict[str, Any] = {"name": name, "title": str(field.meta.title)}
    if field.kind is bool:
        return FormField(**named, kind="checkbox", value="yes" if value else "")
    if field.special == "walltime":
        text = ""
        with suppress(ValueError, OverflowError, OSError):  # after the year 9999, which is no limit
            text = datetime.fromtimestamp(value, UTC).strftime(_MOMENT) if value else ""
        return FormField(**named, kind="datetime-local", value=text)
    is_optional = field.kind is float
    return FormField(
        **named,
        kind="number",
        value="" if is_optional and not value else _number(value),
        least=field.meta.ge,
        most=field.meta.le,
        step="any" if is_optional else "",
        placeholder="nothing" if is_optional else "",
    )


def posted_submission(form: Form, known: SubmitOptions, problems: list[Problem]) -> SubmitOptions:
    """Return the options in the form of deployment; `known` if the form does not have them.

    PT002 is added to `problems` for each field that cannot be used.
    """
    if form.text("options") != "yes":
        return known
    return SubmitOptions(
        **{name: _posted(form.text(name), name, field, problems) for name, field in meta_of(SubmitOptions).items()}
    )


def _posted(text: str, name: str, field: AnnotatedField, problems: list[Problem]) -> Any:
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
        problems.append(problem(BAD_PARTITION, wrong, where=name, hint=f"leave it empty for {field.default:g}"))
        return field.default
