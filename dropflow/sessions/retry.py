"""The drops that run again at the request of a user, for a run on this machine and for a session of managers.

Without names, all failed drops are tried again. Changed parameters are valid for drops that run from then on.

The named drops, and all drops that depend on them, settle again. All other drops stay as they are, and their contents
are read by drops that run again. Contents that are gone are made again
(`dropflow.execution.decisions.continuation.must_run_again`). Inputs from outside of the session are read where they
are. If such an input has changed, and a result that was computed from it would stay, the retry is refused
(`refuse_mixed_results`).
"""

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dropflow.data.registry import outside_roots
from dropflow.errors import BadParameterError, ConflictError, UsageError
from dropflow.execution.decisions.continuation import has_attempts
from dropflow.formatting import plural
from dropflow.graph.components import Unusable, convert_field
from dropflow.graph.order import reached
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Template
from dropflow.graph.text_ids import find_drop, find_drops, oid
from dropflow.states import DropState

RETRY_REASON = "failed drops were tried again with 'dropflow retry'"
_AGAIN_REASON = "drops were run again with 'dropflow retry --from'"
_CODE_REASON = "their code was changed with 'dropflow retry --new-code'"
"""The reason why drops run again, for explanations."""

_SHOWN_DROPS = 5
"""Ids of drops in a message."""
_NO_CODE: Mapping[str, str] = MappingProxyType({})

BooleanColumn = npt.NDArray[np.bool_]
StateColumn = npt.NDArray[np.uint8]
_FIXED = frozenset(
    {"dropclass", "input_error_threshold", "n_effective_inputs", "n_tries", "block_skip", "persist", "num_cpus"}
)
"""Fields that cannot be changed: they affect drops that are settled, or were used by the translator."""


class RepeatedDrops(NamedTuple):
    """The drops that settle again at the request of a user.

    Attributes
    ----------
    starts : tuple of int
        The drops with attempts with which the repetition begins, ascending.
    drops : tuple of int
        These drops, and all drops that depend on them, ascending.
    begun : tuple of int
        Drops among `drops` that had attempts: their earlier attempts do not count as tries.
    """

    starts: tuple[int, ...] = ()
    drops: tuple[int, ...] = ()
    begun: tuple[int, ...] = ()


class Again(NamedTuple):
    """The drops that run again at the request of a user.

    Attributes
    ----------
    graph : PhysicalGraph
        The graph, with changed parameters; the same object if none is changed.
    repeated : tuple of int
        Drops that settle again although their state is known, ascending.
    retried : tuple of int
        Drops whose earlier attempts do not count as tries: root causes, or named drops that had run.
    reason : str
        Why they run again, for explanations.
    is_named : bool
        Whether named drops, and all that depend on them, run again; else failed drops are tried again.
    """

    graph: PhysicalGraph
    repeated: tuple[int, ...] = ()
    retried: tuple[int, ...] = ()
    reason: str = ""
    is_named: bool = False

    def refuse(
        self,
        before: PhysicalGraph,
        states: StateColumn,
        reset: BooleanColumn,
        inputs: "OutsideInputs",
        *,
        where: str = "",
    ) -> None:
        """Refuse to run named drops again if their results would not be consistent with the results that stay.

        Parameters
        ----------
        before : PhysicalGraph
            The graph without changed parameters.
        states, reset, inputs :
            See `refuse_mixed_results`.

        Raises
        ------
        ConflictError
            They would not, or changed parameters would apply to drops that are only made again because contents are
            lost.
        """
        refuse_mixed_results(before, states, self.repeated, reset, inputs, where=where)
        _refuse_unwanted_settings(before, self.graph, np.flatnonzero(reset).tolist(), where=where)


class OutsideInputs(NamedTuple):
    """Data drops without producers whose files or directories have changed since the session read them.

    Attributes
    ----------
    missing : frozenset of int
        Drops whose files do not exist any more.
    changed : frozenset of int
        Drops whose files have changed, or may have changed.
    replaced : frozenset of int
        Drops whose files an application of the session has written over since.
    """

    missing: frozenset[int] = frozenset()
    changed: frozenset[int] = frozenset()
    replaced: frozenset[int] = frozenset()


def choose(
    graph: PhysicalGraph,
    states: StateColumn,
    causes: Mapping[int, int],
    *,
    drops: Sequence[str] = (),
    start: Sequence[str] = (),
    settings: Sequence[str] = (),
    code: Mapping[str, str] = _NO_CODE,
    what: str = "session",
    where: str = "",
    hint: str = "",
) -> Again:
    """Return the drops that run again: the drops of `start` and all that depend on them, or the failed drops.

    If there are none of both, and functions have new code: their drops, and all that depend on them.

    Parameters
    ----------
    states : uint8 array, shape (drops,)
        `DropState` of every drop.
    causes : mapping of int to int
        The drop that started the error of each drop in ERROR.
    drops : sequence of str
        See `causes_to_retry`.
    start : sequence of str
        See `drops_to_repeat`.
    settings : sequence of str
        ``name=value``: a parameter of the nodes of root causes, or of `start`. With ``node.name=value`` only of the
        node with that name.
    code : mapping of str to str
        The source of functions, by the key of their node; for functions that run again, or have not run.
    what, where, hint : str
        Texts for errors, see `causes_to_retry`.

    Raises
    ------
    ConflictError, NotFoundError, AmbiguousError
        No such drop has failed, or has run.
    BadParameterError, UsageError
        A setting does not fit the nodes.
    """
    by_code = [] if start or causes else _completed(graph, states, code)
    if start or by_code:
        named = (
            drops_to_repeat(graph, states, causes, start, where=where)
            if start
            else _repeated_from(graph, states, causes, by_code)
        )
        changed = _with_settings(graph, named.starts, settings, what="run again")
        reason = _AGAIN_REASON if start else _CODE_REASON
        return Again(_with_code(changed, states, named.drops, code), named.drops, named.begun, reason, is_named=True)
    failed = causes_to_retry(graph, states, causes, drops, what=what, where=where, hint=hint)
    retried = set(failed)
    repeated = tuple(sorted(drop for drop, cause in causes.items() if cause in retried))
    changed = _with_code(_with_settings(graph, failed, settings), states, repeated, code)
    return Again(changed, repeated, tuple(failed), RETRY_REASON)


def drops_to_repeat(
    graph: PhysicalGraph,
    states: StateColumn,
    causes: Mapping[int, int],
    names: Sequence[str],
    *,
    where: str = "",
) -> RepeatedDrops:
    """Return the drops that run again, from those that are named.

    A data drop is written again by its producers, and these write all of their outputs again. The name of a logical
    node stands for all of its drops that have run.

    Parameters
    ----------
    states : uint8 array, shape (drops,)
        `DropState` of every drop.
    causes : mapping of int to int
        The drop that started the error of each drop in ERROR.
    names : sequence of str
        Text ids, ends of them, or names, see `dropflow.graph.text_ids.find_drops`.
    where : str
        The place of the drops, for errors.

    Raises
    ------
    ConflictError
        None of the drops with one of the names has run.
    NotFoundError, AmbiguousError
        See `dropflow.graph.text_ids.find_drops`.
    """
    runs = has_attempts(graph)
    before = graph.predecessors
    starts: set[int] = set()
    for name in names:
        named = find_drops(graph, name, states)
        writers = {other for drop in named for other in ([drop] if runs[drop] else before.of(drop))}
        repeated = {drop for drop in writers if _has_run(states, causes, drop)}
        if not repeated:
            raise _has_not_run(graph, states, causes, named[0], where)
        starts |= repeated
    return _repeated_from(graph, states, causes, starts)


def _repeated_from(
    graph: PhysicalGraph, states: StateColumn, causes: Mapping[int, int], starts: Collection[int]
) -> RepeatedDrops:
    runs = has_attempts(graph)
    repeated = np.sort(reached(graph.successors, list(starts))[0]).tolist()
    begun = tuple(drop for drop in repeated if runs[drop] and _has_run(states, causes, drop))
    return RepeatedDrops(tuple(sorted(starts)), tuple(repeated), begun)


def _has_run(states: StateColumn, causes: Mapping[int, int], drop: int) -> bool:
    has_failed = states[drop] == DropState.ERROR and causes.get(drop) == drop
    return bool(states[drop] == DropState.COMPLETED or has_failed)


def _completed(graph: PhysicalGraph, states: StateColumn, code: Mapping[str, str]) -> list[int]:
    """Return the drops that were completed by functions which have new code."""
    rows = [row for row, template in enumerate(graph.templates) if template.key in code]
    drops: list[int] = np.flatnonzero(np.isin(graph.template, rows) & (states == DropState.COMPLETED)).tolist()
    return drops


def _with_code(
    graph: PhysicalGraph, states: StateColumn, repeated: Collection[int], code: Mapping[str, str]
) -> PhysicalGraph:
    """Return the graph with the new code of functions that run; the same graph if there are none."""
    runs = ~np.isin(states, (DropState.COMPLETED, DropState.SKIPPED))
    runs[list(repeated)] = True
    templates = list(graph.templates)
    for row in np.unique(graph.template[runs]).tolist():
        source = code.get(templates[row].key)
        if source is not None and source != templates[row].value("func_code"):
            templates[row] = templates[row].with_value("func_code", source)
    is_same = all(map(operator.is_, templates, graph.templates))
    return graph if is_same else replace(graph, templates=tuple(templates))


def refuse_mixed_results(
    graph: PhysicalGraph,
    states: StateColumn,
    repeated: Collection[int],
    reset: BooleanColumn,
    inputs: OutsideInputs,
    *,
    where: str = "",
) -> None:
    """Refuse to run drops again if their results cannot be computed, or are not consistent with results that stay.

    They cannot be computed if an input from outside of the session has to be read, and is missing or was written over.
    They are not consistent if such an input has changed, or has to be read again, and a drop that was computed from it
    stays.

    Parameters
    ----------
    states : uint8 array, shape (drops,)
        `DropState` of every drop before.
    repeated : collection of int
        The drops that settle again, from `drops_to_repeat`.
    reset : bool array, shape (drops,)
        Completed drops that run again, from `dropflow.execution.decisions.continuation.must_run_again`.
    inputs : OutsideInputs
        The inputs that are missing or have changed.

    Raises
    ------
    ConflictError
        The error names these inputs, and what to do.
    """
    is_named = np.zeros(graph.drops, dtype=np.bool_)
    is_named[list(repeated)] = True
    is_settled = np.isin(states, (DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED))
    runs = reset | is_named | ~is_settled
    after = graph.successors
    outside = outside_roots(graph)
    read = {
        drop for drop in outside if runs[drop] or runs[after.neighbour[after.ptr[drop] : after.ptr[drop + 1]]].any()
    }
    for affected, what, hint in (
        (inputs.missing, "does not exist any more", "put it back"),
        (inputs.replaced, "was written over by the session itself", "put it back, and submit the graph again"),
    ):
        lacking = sorted(read & affected)
        if lacking:
            raise ConflictError(
                f"drops that would run again need {_listed(graph, lacking)}, which {what}", where=where, hint=hint
            )
    fresh = [drop for drop in sorted(read) if not is_named[drop] and (runs[drop] or drop in inputs.changed)]
    stays = is_settled & ~runs
    stays[fresh] = False
    if not stays[reached(graph.successors, fresh)[0]].any():
        return
    for drop in fresh:
        dependents = reached(graph.successors, [drop])[0]
        staying = np.sort(dependents[stays[dependents]]).tolist()
        if staying:
            why = "has changed since the session read it" if drop in inputs.changed else "has to be read again"
            raise ConflictError(
                f"{oid(graph, drop)} {why}, and {plural(len(staying), 'drop')} that would stay "
                f"{'depends' if len(staying) == 1 else 'depend'} on its old content: {_listed(graph, staying)}",
                where=where,
                hint=f"run all that depends on it again: --from {oid(graph, drop)}; or put it back as it was",
            )


def _has_not_run(
    graph: PhysicalGraph, states: StateColumn, causes: Mapping[int, int], drop: int, where: str
) -> ConflictError:
    """Return the error for a drop that no attempt has settled."""
    state = DropState(int(states[drop]))
    hint = "'dropflow resume' runs drops that have not run"
    if state is DropState.ERROR:
        cause = causes.get(drop, -1)
        named = oid(graph, cause) if cause >= 0 else "its root cause"
        hint = f"it failed because of {named}: name that one, or leave out --from"
    elif state is DropState.SKIPPED:
        hint = "name a drop that it depends on, such as the branch that skipped it"
    return ConflictError(f"{oid(graph, drop)} has not run: it is {state.name}", where=where, hint=hint)


def _listed(graph: PhysicalGraph, drops: Sequence[int]) -> str:
    more = f" and {len(drops) - _SHOWN_DROPS} more" if len(drops) > _SHOWN_DROPS else ""
    return ", ".join(oid(graph, drop) for drop in drops[:_SHOWN_DROPS]) + more


# The root causes that are tried again, for a run on this machine and for a session of managers.


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
        Texts for errors: the owner of the drops, its place, and what to do if no drop has failed.

    Raises
    ------
    ConflictError
        No drop failed, or not the named drops.
    NotFoundError, AmbiguousError
        See `dropflow.graph.text_ids.find_drop`.
    """
    if not causes:
        raise ConflictError(f"no drop of this {what} failed", where=where, hint=hint)
    if not drops:
        return sorted(set(causes.values()))
    chosen = set()
    for text in drops:
        drop = find_drop(graph, text, states)
        if drop not in causes:
            failed = ", ".join(oid(graph, cause) for cause in sorted(set(causes.values()))[:_SHOWN_DROPS])
            raise ConflictError(
                f"{oid(graph, drop)} did not fail: it is {DropState(int(states[drop])).name}",
                where=where,
                hint=f"failed were: {failed}",
            )
        chosen.add(causes[drop])
    return sorted(chosen)


def _with_settings(
    graph: PhysicalGraph, causes: Sequence[int], settings: Sequence[str], *, what: str = "failed"
) -> PhysicalGraph:
    """Return the graph with changed parameters of the nodes that failed; the same graph without settings.

    Parameters
    ----------
    causes : sequence of int
        The drops that failed by themselves and are tried again, or the drops that run again.
    settings : sequence of str
        ``name=value``, or ``node.name=value``.
    what : str
        Text for errors: what these nodes did.

    Raises
    ------
    UsageError
        A setting has a wrong form, or none of these nodes has the parameter.
    BadParameterError
        The parameter cannot be changed, or cannot have the value.
    """
    templates = list(graph.templates)
    failed = sorted({int(graph.template[drop]) for drop in causes})
    for setting in settings:
        address, separator, value = setting.partition("=")
        if not separator or not address:
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


def _refuse_unwanted_settings(
    before: PhysicalGraph,
    graph: PhysicalGraph,
    reset: Collection[int],
    *,
    where: str = "",
) -> None:
    """Refuse changed parameters that would apply to drops which are only made again because contents are lost.

    Parameters
    ----------
    before, graph : PhysicalGraph
        The graph without, and with the changed parameters.
    reset : collection of int
        Completed drops that run again because contents are lost.

    Raises
    ------
    ConflictError
        One of these drops belongs to a changed node.
    """
    pairs = zip(before.templates, graph.templates, strict=True)
    changed = [row for row, (old, new) in enumerate(pairs) if old is not new]
    drops = sorted(drop for drop in reset if graph.template[drop] in changed)
    if drops:
        raise ConflictError(
            f"{oid(graph, drops[0])} has to run again with the parameters that it had, since its content is gone: "
            f"a parameter of '{graph.templates[graph.template[drops[0]]].name}' cannot be changed for other drops only",
            where=where,
            hint=f"run it again as well: --from {oid(graph, drops[0])}; or leave out the setting",
        )


def _with_value(template: Template, name: str, value: str) -> Template:
    """Return a node with another value of one parameter."""
    argument = template.argument(name)
    assert argument is not None  # see `_with_settings`
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
    return template.with_value(name, converted)


def _described(templates: Sequence[Template]) -> str:
    """Return the names of nodes with the names of their parameters."""
    nodes = []
    for node in templates[:5]:
        parameters = (field.name for field in node.arguments if not field.is_port and field.name not in _FIXED)
        nodes.append(f"{node.name} ({', '.join(parameters)})")
    return "; ".join(nodes)
