"""Changed parameters of nodes that failed, for drops that are tried again."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from dropflow.engine.parameters import Unusable, convert_field
from dropflow.errors import BadParameterError, UsageError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Template

__all__ = ["with_settings"]

_FIXED = frozenset(
    {"dropclass", "input_error_threshold", "n_effective_inputs", "n_tries", "block_skip", "persist", "num_cpus"}
)
"""Fields that decide about drops that are settled already, or that the translator has taken into the graph."""


def with_settings(graph: PhysicalGraph, causes: Sequence[int], settings: Sequence[str]) -> PhysicalGraph:
    """Return the graph with changed parameters of the nodes that failed; the same graph without settings.

    Parameters
    ----------
    causes : sequence of int
        The drops that failed by themselves and are tried again.
    settings : sequence of str
        ``name=value``, or ``node.name=value``.

    Raises
    ------
    UsageError
        A setting has another form, or none of these nodes has the parameter.
    BadParameterError
        The parameter cannot be changed, or cannot have the value.
    """
    templates = list(graph.templates)
    failed = sorted({int(graph.template[drop]) for drop in causes})
    for setting in settings:
        address, found, value = setting.partition("=")
        if not found or not address:
            raise UsageError(f"the setting {setting!r} is not of the form name=value", where="--set")
        node, _, name = address.rpartition(".")
        rows = [row for row in failed if node in ("", templates[row].name, templates[row].key, templates[row].app_name)]
        rows = [row for row in rows if templates[row].argument(name) is not None]
        if not rows:
            raise UsageError(
                f"none of the nodes that failed has a parameter {address!r}",
                where="--set",
                hint=f"failed were: {_described([templates[row] for row in failed])}",
            )
        for row in rows:
            templates[row] = _with_value(templates[row], name, value)
    return graph if not settings else replace(graph, templates=tuple(templates))


def _with_value(template: Template, name: str, value: str) -> Template:
    """Return a node with another value of one parameter."""
    argument = template.argument(name)
    assert argument is not None  # noqa: S101 - see `with_settings`
    if name in _FIXED or argument.is_port:
        what = "is a port" if argument.is_port else "decides about drops that are settled already"
        raise BadParameterError(
            f"{name!r} of {template.name!r} cannot be changed in a run that has begun: it {what}",
            fields=(name,),
            where="--set",
            hint="change the graph, and run it again",
        )
    try:
        converted = convert_field(value, argument.type, options=argument.options)
    except Unusable as error:
        raise BadParameterError(
            f"{name!r} of {template.name!r} cannot be {value!r}: {error}", fields=(name,), where="--set"
        ) from error

    def changed(one: Argument) -> Argument:
        return msgspec.structs.replace(one, value=converted) if one.name == name else one

    return msgspec.structs.replace(template, arguments=tuple(changed(one) for one in template.arguments))


def _described(templates: Sequence[Template]) -> str:
    """Return the names of nodes with those of their parameters."""
    return "; ".join(
        f"{node.name} ({', '.join(one.name for one in node.arguments if not one.is_port and one.name not in _FIXED)})"
        for node in templates[:5]
    )
