"""Changed parameters of nodes that failed, for drops that are tried again."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.engine.parameters import Unusable, convert_field
from dropflow.errors import BadParameterError, ConflictError, UsageError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Template
from dropflow.graph.text_ids import find_drop, oid
from dropflow.states import DropState

__all__ = [
    "RETRY_REASON",
    "causes_to_retry",
    "refuse_unwanted_settings",
    "with_settings",
]


# Which root causes are tried again, for a run on this machine and for a session of managers.

RETRY_REASON = "failed drops were tried again with 'dropflow retry'"
"""Why drops run again, for explanations."""

_SHOWN = 5


def causes_to_retry(
    graph: PhysicalGraph,
    states: bytes | bytearray | npt.NDArray[np.uint8],
    causes: Mapping[int, int],
    drops: Sequence[str],
    *,
    what: str = "session",
    where: str = "",
    hint: str = "",
) -> list[int]:
    """Return the root causes that are tried again, ascending.

    Parameters
    ----------
    states : bytes or uint8 array, shape (drops,)
        `DropState` of every drop.
    causes : mapping of int to int
        The drop that started the error of each drop in ERROR.
    drops : sequence of str
        Text ids, or ends of them, of drops in ERROR; without them, all root causes are tried again.
    what, where, hint : str
        For errors: what has the drops, where it is, and what to do if none has failed.

    Raises
    ------
    ConflictError
        No drop failed, or not those that are named.
    NotFoundError, AmbiguousError
        See `dropflow.graph.text_ids.find_drop`.
    """
    if not causes:
        raise ConflictError(f"no drop of this {what} failed", where=where, hint=hint)
    if not drops:
        return sorted(set(causes.values()))
    chosen = set()
    for text in drops:
        drop = find_drop(graph, text)
        if drop not in causes:
            failed = ", ".join(oid(graph, one) for one in sorted(set(causes.values()))[:_SHOWN])
            raise ConflictError(
                f"{oid(graph, drop)} did not fail: it is {DropState(int(states[drop])).name}",
                where=where,
                hint=f"failed were: {failed}",
            )
        chosen.add(causes[drop])
    return sorted(chosen)


_FIXED = frozenset(
    {"dropclass", "input_error_threshold", "n_effective_inputs", "n_tries", "block_skip", "persist", "num_cpus"}
)
"""Fields that decide about drops that are settled already, or that the translator has taken into the graph."""


def with_settings(
    graph: PhysicalGraph, causes: Sequence[int], settings: Sequence[str], *, what: str = "failed"
) -> PhysicalGraph:
    """Return the graph with changed parameters of the nodes that failed; the same graph without settings.

    Parameters
    ----------
    causes : sequence of int
        The drops that failed by themselves and are tried again, or those that are run again.
    settings : sequence of str
        ``name=value``, or ``node.name=value``.
    what : str
        What these nodes did, for errors.

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
            these = "failed were" if what == "failed" else "these are"
            raise UsageError(
                f"none of the nodes that {what} has a parameter {address!r}",
                where="--set",
                hint=f"{these}: {_described([templates[row] for row in failed])}",
            )
        for row in rows:
            templates[row] = _with_value(templates[row], name, value)
    return graph if not settings else replace(graph, templates=tuple(templates))


def refuse_unwanted_settings(
    before: PhysicalGraph,
    graph: PhysicalGraph,
    reset: Collection[int],
    *,
    where: str = "",
) -> None:
    """Refuse changed parameters with which drops would be made again that were asked to stay as they are.

    Parameters
    ----------
    before, graph : PhysicalGraph
        Without, and with the changed parameters.
    reset : collection of int
        Completed drops that run again because contents are lost.

    Raises
    ------
    ConflictError
        One of these is of a changed node.
    """
    pairs = zip(before.templates, graph.templates, strict=True)
    changed = [row for row, (old, new) in enumerate(pairs) if old is not new]
    found = sorted(drop for drop in reset if graph.template[drop] in changed)
    if found:
        raise ConflictError(
            f"{oid(graph, found[0])} has to run again with the parameters that it had, since its content is gone: "
            f"a parameter of '{graph.templates[graph.template[found[0]]].name}' cannot be changed for other drops only",
            where=where,
            hint=f"run it again as well: --from {oid(graph, found[0])}; or leave out the setting",
        )


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
