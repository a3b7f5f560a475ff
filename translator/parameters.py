"""Fills in the values of parameters: configurations, global variables and settings of the user.

Sources in rising priority: defaults, values, the active configuration, a named configuration, settings
(``NODE.PARAM=VALUE``). Then ``{x}`` is replaced in every text value if ``x`` is a global variable of the graph or of
the user (``global.x=VALUE``). Texts in fields with the type of a number or truth value are converted. Only values of
the parsed model are changed, not the text of a document, and nothing is evaluated.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from dropflow.failure import Problem, Severity
from dropflow.formatting import did_you_mean
from dropflow.graph.components import Unusable, convert_field, fold, is_empty
from translator.expressions import (
    INPUT_NAMES,
    ExpressionError,
    UnknownNameError,
    evaluate,
    is_estimate,
    is_expression,
    names_in,
    settled_estimate,
    uses_names,
)
from translator.logical import Configuration, Field, LogicalGraph, LogicalNode, NodeKind
from translator.problem_codes import problem
from translator.template import MULTIPLICITIES, TemplateParameter, check_ranges, is_numeric, is_template, parameters_of

Address = tuple[str, int]
"""A field: the id of its node, and its index among the fields of the node."""

GLOBAL = "global"
"""Name of the node in settings of global variables."""

_LISTED_NAMES = 12
"""Ids of nodes, or names of parameters, in a message."""
_LONGEST = 1_000_000
"""Characters of the value of a global variable that names others: each may name several of the one before."""
_BRACES = re.compile(r"\{([A-Za-z_][\w.]*)\}")
_TILDE = re.compile(r"~(?:\{([A-Za-z_][\w.]*)\}|([A-Za-z_][\w.]*))")
_GLOBAL_VARIABLES_WHOLE = re.compile(r"\s*(?:[~$]?\{([A-Za-z_][\w.]*)\}|[~$]([A-Za-z_][\w.]*))\s*")
_CONVERTED = frozenset({"Integer", "Float", "Boolean"})
_WHOLE_FIELDS = frozenset(
    {"num_cpus", "num_gpus", "n_tries", "n_effective_inputs", "num_of_copies", "num_of_inputs", "num_of_iter"}
)
"""Fields that dropflow reads as integers: a fraction in them is reported by other checks."""
Values = dict[Address, Any]
"""Values by node id and index of the field in the node."""

# Settings of users: finds the field for ``NODE.PARAM``, and reports names without a field or with several.


class Setting(NamedTuple):
    """A setting of a user. Node and parameter may have dots, so all ways to split ``NODE.PARAM`` are tried."""

    target: str
    value: Any

    @property
    def parameter(self) -> str:
        """The name after ``global.``."""
        return self.target.partition(".")[2]


def addresses_of(graph: LogicalGraph, node: LogicalNode, field_id: str) -> list[Address]:
    """Return the addresses of a field of `node`, or shared with it.

    A construct and its first application share the fields of the construct. A field that only an application has can
    also be set on the construct.
    """
    construct = graph.by_id.get(node.embedded_in or node.id, node)
    group = (construct, *graph.embedded.get(construct.id, ()))
    if field_id not in construct.by_id and field_id in node.by_id:
        group = (node,)
    return [(holder.id, place) for holder in group for place, field in enumerate(holder.fields) if field.id == field_id]


def split_settings(settings: Mapping[str, Any] | Sequence[str], problems: list[Problem]) -> Iterator[Setting]:
    """Yield settings from a mapping, or from texts ``NODE.PARAM=VALUE``. Other texts are a finding ``LG100``.

    A name without a node is that of a parameter of the graph: ``n=4`` means ``global.n=4``.
    """
    if isinstance(settings, Mapping):
        for target, value in settings.items():
            yield Setting(target if "." in target else f"{GLOBAL}.{target}", value)
        return
    for text in settings:
        target, sign, value = text.partition("=")
        if sign and "." in target.strip().strip("."):
            yield Setting(target.strip(), value)
        elif sign and target.strip().isidentifier():
            yield Setting(f"{GLOBAL}.{target.strip()}", value)
        else:
            hint = "write NODE.PARAM=VALUE, for example 'Scatter.num_of_copies=4', or global.NAME=VALUE"
            lack = "parameter of a node" if sign else "'=' with a value"
            problems.append(problem("LG100", f"the setting {text!r} has no {lack}", where=text, hint=hint))


def resolve_setting(graph: LogicalGraph, setting: Setting, problems: list[Problem]) -> list[Address] | None:
    """Return the addresses of the field of a setting, with all its copies.

    Returns
    -------
    list of Address, or None
        Empty, with a finding ``LG100``, if there is no such field or several; None for a global variable.
    """
    readings = [
        (setting.target[:place], setting.target[place + 1 :])
        for place, character in enumerate(setting.target)
        if character == "."
    ]
    named = False
    for node_name, parameter in readings:
        nodes = [node for node in _selectable(graph) if node_name in _names(node, graph)]
        named = named or bool(nodes)
        matches = [(node, place) for node in nodes for place in _fields(node, parameter)]
        owners = {node.embedded_in or node.id for node, _ in matches}
        if len(owners) == 1:
            node, place = matches[0]
            return addresses_of(graph, node, node.fields[place].id)
        if owners:
            problems.append(_ambiguous(setting, matches))
            return []
    if setting.target.startswith(f"{GLOBAL}.") and not named:
        return None
    problems.append(_unknown(graph, setting, readings))
    return []


def _selectable(graph: LogicalGraph) -> Iterator[LogicalNode]:
    return (node for node in graph.nodes if node.kind is not NodeKind.NOTE)


def _names(node: LogicalNode, graph: LogicalGraph) -> tuple[str, ...]:
    if node.embedded_in is None:
        return node.id, node.name
    construct = graph.by_id.get(node.embedded_in)
    around = f"{construct.name}/{node.app_name}" if construct else node.app_name
    return node.id, node.name, node.app_name, around


def _fields(node: LogicalNode, parameter: str) -> list[int]:
    """Return the index of the field with the name or id `parameter`, else ignoring case and separators."""
    named = [place for place, field in enumerate(node.fields) if parameter in (field.name, field.id)]
    if not named:
        folded = fold(parameter)
        named = [place for place, field in enumerate(node.fields) if fold(field.name) == folded]
    plain = [place for place in named if not node.fields[place].is_port]
    return (plain or named)[:1]


def _ambiguous(setting: Setting, matches: list[tuple[LogicalNode, int]]) -> Problem:
    ids = ", ".join(node.id for node, _ in matches[:_LISTED_NAMES])
    text = f"{len(matches)} nodes have a parameter {setting.target!r}"
    return problem("LG100", text, where=setting.target, hint=f"name the node by its id, one of {ids}")


def _unknown(graph: LogicalGraph, setting: Setting, readings: list[tuple[str, str]]) -> Problem:
    for node_name, parameter in readings:
        nodes = [node for node in _selectable(graph) if node_name in _names(node, graph)]
        if nodes:
            names = sorted({field.name for node in nodes for field in node.fields if field.usage == "NoPort"})
            text = f"node {node_name!r} has no parameter {parameter!r}"
            return problem("LG100", text, where=setting.target, hint=_did_you_mean(parameter, names))
    node_name = readings[-1][0] if readings else setting.target
    names = sorted({name for node in _selectable(graph) for name in _names(node, graph)[1:] if name})
    text = f"the graph has no node {node_name!r}"
    return problem("LG100", text, where=setting.target, hint=_did_you_mean(node_name, names))


def _did_you_mean(name: str, known: list[str]) -> str:
    if near := did_you_mean(name, known, most=3, cutoff=0.5):
        return near
    listed = ", ".join(map(repr, known[:_LISTED_NAMES])) + (", ..." if len(known) > _LISTED_NAMES else "")
    return f"there are {listed}" if known else "there are none"


# Global variables, and their placeholders in values: ``{x}``, and with `tilde` also ``~x`` and ``~{x}``.
#
# As a whole value, ``~x``, ``~{x}``, ``$x`` and ``${x}`` are placeholders in any case.


def find_variables(graph: LogicalGraph, given: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """Return the value of every global variable by name.

    Parameters
    ----------
    graph : LogicalGraph
        Its variables are the typed fields of nodes of kind ``globals``.
    given : mapping of str to Any
        Values from the user. A variable that is also in the graph has the type of the graph.
    problems : list of Problem
        Gets ``LG091`` for a value that does not fit its type, and ``LG090`` for variables that refer to each other in a
        cycle.
    """
    variables: dict[str, Any] = dict(given)
    for node in graph.nodes:
        if node.kind is not NodeKind.GLOBALS:
            continue
        for field in node.fields:
            value = given.get(field.name, field.effective)
            try:
                variables[field.name] = (
                    value if is_empty(value, field.type) else _global_variables_typed(value, field.type)
                )
            except Unusable as complaint:
                variables[field.name] = value
                text = f"the global variable {field.name!r} is {value!r:.60}, expected {complaint}"
                severity = Severity.ERROR if field.name in given else Severity.WARNING
                problems.append(problem("LG091", text, where=field.pointer, severity=severity))
    return _expanded(variables, problems)


def substitute(value: Any, variables: Mapping[str, Any], used: set[str], *, tilde: bool = False) -> Any:
    """Return `value` with the placeholders in all its texts replaced by values of variables.

    A text that is a single placeholder becomes the value of the variable, with its type. Braces around other text are
    not changed: commands and code have them.

    Parameters
    ----------
    value : Any
        Any JSON value; keys of objects are not changed.
    variables : mapping of str to Any
        Values by name.
    used : set of str
        Gets the names of the variables that were used.
    tilde : bool, optional
        Also replace ``~x`` and ``~{x}``.
    """
    if isinstance(value, str):
        return _in_text(value, variables, used, tilde=tilde)
    if isinstance(value, list):
        return [substitute(item, variables, used, tilde=tilde) for item in value]
    if isinstance(value, dict):
        return {key: substitute(item, variables, used, tilde=tilde) for key, item in value.items()}
    return value


def placeholder_name(value: Any) -> str:
    """Return the name in a value that is a single placeholder; empty for any other value."""
    match = _GLOBAL_VARIABLES_WHOLE.fullmatch(value) if isinstance(value, str) else None
    return _name(match) if match else ""


def unresolved(value: Any) -> bool:
    """Return whether `value` is a single placeholder."""
    return isinstance(value, str) and _GLOBAL_VARIABLES_WHOLE.fullmatch(value) is not None


def _in_text(text: str, variables: Mapping[str, Any], used: set[str], *, tilde: bool) -> Any:
    for pattern in (_TILDE, _BRACES) if tilde else (_BRACES,):
        whole_match = pattern.fullmatch(text.strip())
        name = _name(whole_match) if whole_match else ""
        if name in variables:
            used.add(name)
            return variables[name]

        def value_of(match: re.Match[str]) -> str:
            name = _name(match)
            if name not in variables:
                return match[0]
            used.add(name)
            return _as_text(variables[name])

        text = pattern.sub(value_of, text)
    return text


def _name(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group)


def _as_text(value: Any) -> str:
    return "" if value is None else str(value)


def _global_variables_typed(value: Any, type_: str) -> Any:
    plain = isinstance(value, str) and (value.lstrip().startswith("$") or _BRACES.search(value))
    return value if plain else convert_field(value, type_)


def _expanded(variables: dict[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """Resolve variables in the values of variables, each after those that it names."""
    names = {name: _named_in(value, variables) for name, value in variables.items()}
    sorter = TopologicalSorter(names)
    with suppress(CycleError):  # what is in no cycle is resolved all the same
        sorter.prepare()
    expanded: dict[str, Any] = {}
    while ready := sorter.get_ready():
        for name in ready:
            value = variables[name]
            if names[name] and len(value) + sum(len(_as_text(expanded[other])) for other in names[name]) > _LONGEST:
                text = f"the value of the global variable {name!r} has more than {_LONGEST:,} characters"
                problems.append(problem("LG090", text, where="", hint="give it a shorter value"))
            elif names[name]:
                value = substitute(value, expanded, set())
            expanded[name] = value
        sorter.done(*ready)
    circle = sorted(variables.keys() - expanded.keys())
    if circle:
        text = f"the global variables {', '.join(circle)} refer to each other in a cycle"
        problems.append(problem("LG090", text, where="", hint="give one of them a plain value"))
    return variables | expanded | {name: substitute(variables[name], expanded, set()) for name in circle}


def _named_in(value: Any, variables: Mapping[str, Any]) -> list[str]:
    """Return the variables that a text names, each as often as it does."""
    found = _BRACES.finditer(value) if isinstance(value, str) else ()
    return [match[1] for match in found if match[1] in variables]


def fill(
    graph: LogicalGraph,
    *,
    configuration: str | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    tilde: bool = False,
) -> tuple[LogicalGraph, tuple[Problem, ...]]:
    """Return the graph with the final value of every parameter.

    Numbers may be written as expressions over parameters, such as ``{n} * 2`` (`translator.expressions`).

    Parameters
    ----------
    graph : LogicalGraph
        The graph as it was read.
    configuration : str, optional
        Id or name of a stored configuration, applied on top of the active one.
    settings : mapping of str to Any, or sequence of str
        ``NODE.PARAM`` and a value, or texts ``NODE.PARAM=VALUE``. The node is named by its id or its name
        (``construct/application`` for an embedded one), the parameter by its name or the id of its field.
        ``global.x``, or ``x`` alone, sets a parameter of the graph.
    tilde : bool
        Whether ``~x`` is also replaced inside texts.

    Returns
    -------
    LogicalGraph
        A new graph, with the same nodes if nothing changed.
    tuple of Problem
        ``LG090``, ``LG091``, ``LG092``, ``LG094`` and ``LG100``. A stored value for a node that the graph does not have
        any more is a warning; a setting of the user that cannot be applied is an error.
    """
    problems: list[Problem] = []
    values: Values = {}
    for chosen, severity in _configurations(graph, configuration, problems):
        values.update(_configured(graph, chosen, severity, problems))
    given: dict[str, Any] = {}
    settings = settings if isinstance(settings, Mapping) else tuple(settings)
    for setting in split_settings(settings, problems):
        addresses = resolve_setting(graph, setting, problems)
        if addresses is None:
            given[setting.parameter] = setting.value
        else:
            values.update(_set(graph, addresses, setting.value, problems))
    graph = _with_values(graph, values)
    graph = _substituted(graph, given, problems, bare=_bare(settings), tilde=tilde)
    return _converted(graph, problems), tuple(problems)


def variables_of(
    graph: LogicalGraph, configuration: str | None, settings: Mapping[str, Any] | Sequence[str]
) -> dict[str, Any]:
    """Return the value of every parameter of a graph by name, with a configuration and settings; see `fill`."""
    values: Values = {}
    for chosen, severity in _configurations(graph, configuration, []):
        values.update(_configured(graph, chosen, severity, []))
    given = {
        setting.parameter: setting.value
        for setting in split_settings(settings, [])
        if setting.target.partition(".")[0] == GLOBAL
    }
    return find_variables(_with_values(graph, values), given, [])


def _configurations(
    graph: LogicalGraph, named: str | None, problems: list[Problem]
) -> Iterable[tuple[Configuration, Severity]]:
    by_id = {configuration.id: configuration for configuration in graph.configurations}
    active = graph.active_configuration
    if active is not None:
        if active in by_id:
            yield by_id[active], Severity.WARNING
        else:
            text = f"the active configuration {active!r} is not among the graph's {len(by_id)}; none is applied"
            problems.append(problem("LG100", text, where="/activeGraphConfigId", severity=Severity.WARNING))
    if named is None:
        return
    matching = [by_id[named]] if named in by_id else [c for c in graph.configurations if c.name == named]
    if len(matching) == 1:
        yield matching[0], Severity.ERROR
        return
    known = ", ".join(repr(c.name or c.id) for c in graph.configurations) or "none"
    text = (
        f"the graph has {len(matching) or 'no'} configurations {named!r}"
        if matching
        else (f"the graph has no configuration {named!r}")
    )
    hint = "name it by its id" if matching else f"it has {known}"
    problems.append(problem("LG100", text, where="/graphConfigurations", hint=hint))


def _configured(
    graph: LogicalGraph,
    configuration: Configuration,
    severity: Severity,
    problems: list[Problem],
) -> Values:
    values: Values = {}
    for node_id, field, value, pointer in configuration.values:
        node = graph.by_id.get(node_id)
        addresses = addresses_of(graph, node, field) if node else []
        if addresses:
            values.update(dict.fromkeys(addresses, value))
            continue
        what = f"field {field!r} of node {node.name!r}" if node else f"node {node_id!r}"
        text = f"configuration {configuration.name or configuration.id!r} sets {what}, which the graph does not have"
        hint = "open the graph in EAGLE and save the configuration again"
        problems.append(problem("LG100", text, where=pointer, hint=hint, severity=severity))
    return values


def _with_values(graph: LogicalGraph, values: Values) -> LogicalGraph:
    changed: dict[str, dict[int, Any]] = {}
    for (node, place), value in values.items():
        changed.setdefault(node, {})[place] = value
    nodes = tuple(_node_with(node, changed[node.id]) if node.id in changed else node for node in graph.nodes)
    return replace(graph, nodes=nodes) if changed else graph


def _node_with(node: LogicalNode, values: Mapping[int, Any]) -> LogicalNode:
    fields = list(node.fields)
    for place, value in values.items():
        if place < len(fields):  # nodes with the same id (which is LG006) may have different fields
            fields[place] = replace(fields[place], value=value)
    return replace(node, fields=tuple(fields))


def _bare(settings: Mapping[str, Any] | Sequence[str]) -> set[str]:
    """Return the names that are set without a node."""
    names = list(settings) if isinstance(settings, Mapping) else [text.partition("=")[0] for text in settings]
    return {name.strip() for name in names if "." not in name}


def _unused(graph: LogicalGraph, name: str, *, is_bare: bool) -> Problem:
    """Return LG100 for a parameter that the graph does not have, and LG092 for a global variable without use."""
    if not is_bare:
        return problem("LG092", f"no value uses the global variable {name!r} that was set", where=name)
    names = [parameter.name for parameter in parameters_of(graph)]
    known = f"the parameters {', '.join(names)}" if names else "no parameters"
    hint = f"the graph has {known}; to set a field of a node write NODE.PARAM=VALUE"
    return problem("LG100", f"the graph has no parameter {name!r}", where=name, hint=hint)


def _substituted(
    graph: LogicalGraph, given: Mapping[str, Any], problems: list[Problem], *, bare: set[str], tilde: bool
) -> LogicalGraph:
    if given:
        refused = tuple(check_ranges(parameters_of(graph), given))
        problems.extend(finding for finding, _, _ in refused)
        given = {**given, **{name: value for _, name, value in refused}}
    variables, used = find_variables(graph, given, problems), set[str]()
    values: Values = {}
    of_constructs: dict[str, Any] = {}
    for node in sorted(graph.nodes, key=lambda node: node.embedded_in is not None):
        if node.kind in (NodeKind.GLOBALS, NodeKind.NOTE):
            continue
        for place, field in enumerate(node.fields):
            if node.embedded_in is not None and field.pointer in of_constructs:
                value = of_constructs[field.pointer]  # a copy: its value is that of the construct
            elif is_expression(node, field, variables):
                value = settled_estimate(node, field, variables, used, problems)
            elif isinstance(field.effective, str) and is_numeric(node, field):
                value = _computed(node, field, variables, used, problems)
            else:
                value = _replaced(field.effective, variables, used, tilde=tilde) if variables else field.effective
            if node.kind is NodeKind.CONSTRUCT and field.pointer:
                of_constructs[field.pointer] = value
            if value is not field.effective and value != field.effective:
                values[node.id, place] = value
    declared = {parameter.name for parameter in parameters_of(graph)} if bare else set()
    problems.extend(
        _unused(graph, name, is_bare=name in bare and name not in declared) for name in given if name not in used
    )
    return _with_values(graph, values)


def _replaced(value: Any, variables: Mapping[str, Any], used: set[str], *, tilde: bool) -> Any:
    name = placeholder_name(value)
    if name in variables:
        used.add(name)
        return variables[name]
    return substitute(value, variables, used, tilde=tilde)


def _computed(
    node: LogicalNode, field: Field, variables: Mapping[str, Any], used: set[str], problems: list[Problem]
) -> Any:
    """Return the value of a number that is written as an expression; other texts as they are.

    A placeholder without a value is LG090 in the size of a construct. In other fields it may have a meaning later.
    """
    text = field.effective
    names = [name for name in names_in(text) if name in variables]
    is_size = field.name in MULTIPLICITIES.get(node.category, ())
    if not (names or is_size):
        return text
    if placeholder_name(text) in variables:
        used.update(names)
        return variables[names[0]]  # what is not a number is reported with the field
    try:
        value = evaluate(text, variables)
    except UnknownNameError as error:
        if is_size and names_in(text):
            problems.append(_open_placeholder(node, field, error.name, variables))
        return text
    except ExpressionError as error:
        if names:
            what = f"{field.name} of {node.category} {node.name!r} is {text!r:.60}"
            hint = "write numbers, placeholders, + - * / // % **, parentheses, min, max, ceil, floor or round"
            where = field.pointer or node.pointer
            problems.append(problem("LG091", f"{what}, which has no value: {error}", where=where, hint=hint))
        return text
    used.update(names)
    return value if names or not _is_plain(text) else text


def _is_plain(text: str) -> bool:
    """Return whether a text is a number without any operator."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _open_placeholder(node: LogicalNode, field: Field, name: str, variables: Mapping[str, Any]) -> Problem:
    value = field.effective
    known = f"the graph has {', '.join(sorted(variables))}" if variables else "the graph has no global variables"
    return problem(
        "LG090",
        f"{field.name} of {node.category} {node.name!r} is {value!r:.60}, which has no value",
        where=field.pointer or node.pointer,
        hint=f"{known}; set it with --set {name}=VALUE",
    )


def _converted(graph: LogicalGraph, problems: list[Problem]) -> LogicalGraph:
    """Return the graph with texts converted to numbers and truth values, according to the types of fields."""
    values: Values = {}
    for node, place, field in _typed_fields(graph):
        if isinstance(field.value, str):
            try:
                values[node.id, place] = convert_field(field.value, field.type)
            except Unusable as complaint:
                if not field.is_port and node.embedded_in is None:
                    problems.append(_unconverted(node, field, str(complaint)))
    problems.extend(_numbers(graph, values))
    return _with_values(graph, values)


def _typed_fields(graph: LogicalGraph) -> Iterator[tuple[LogicalNode, int, Field]]:
    """Yield the fields with the type of a number or truth value that have a value, with their indices."""
    for node in graph.nodes:
        if node.kind not in (NodeKind.GLOBALS, NodeKind.NOTE):
            for place, field in enumerate(node.fields):
                if field.type in _CONVERTED and not _is_left(field.value, field.type) and not _depends(node, field):
                    yield node, place, field


def _numbers(graph: LogicalGraph, values: Values) -> Iterator[Problem]:
    """Yield LG094 for numbers in `values` that were written as text, and for fractions in fields of type Integer."""
    spelled: dict[str, str] = {}
    fractions: dict[str, Problem] = {}
    for node, place, field in _typed_fields(graph):
        value = values.get((node.id, place), field.value)
        if field.is_port or isinstance(value, str | bool):
            continue
        where = field.pointer or node.pointer
        if field.type == "Integer" and isinstance(value, float) and not value.is_integer():
            if field.name not in _WHOLE_FIELDS:
                fractions[where] = _fraction(node, field, value)
        elif isinstance(field.value, str):
            spelled.setdefault(where, f"{field.name} of {node.name!r}")
    yield from fractions.values()
    if spelled:
        yield _spelled(spelled)


def _fraction(node: LogicalNode, field: Field, value: float) -> Problem:
    return problem(
        "LG094",
        f"{field.name} of {node.category} {node.name!r} is of type Integer and has the value {value:g}, which is used",
        where=field.pointer or node.pointer,
        hint="change the type of the field to Float",
    )


def _spelled(fields: Mapping[str, str]) -> Problem:
    """Return one finding for all numbers that are written as text: graphs of old editors have hundreds of them."""
    where, first = next(iter(fields.items()))
    more = f" and {len(fields) - 1} more" if len(fields) > 1 else ""
    text = f"numbers are written as text in {first}{more}; they are used as numbers"
    return problem("LG094", text, where=where, hint="open the graph in EAGLE and save it")


def _depends(node: LogicalNode, field: Field) -> bool:
    """Return whether a field is an estimate that depends on the sizes of inputs."""
    return is_estimate(node, field) and isinstance(field.value, str) and uses_names(field.value, INPUT_NAMES)


def _is_left(value: Any, type_: str) -> bool:
    """Return whether a value is not converted: it is empty, or a text to be replaced later (``$DLG_ROOT``, ``{x}``)."""
    replaced = isinstance(value, str) and (value.lstrip().startswith("$") or unresolved(value))
    return replaced or is_empty(value, type_)


def _unconverted(node: LogicalNode, field: Field, expected: str) -> Problem:
    return problem(
        "LG091",
        f"{field.name} of {node.category} {node.name!r} is {field.value!r:.60}, expected {expected}; it stays text",
        where=field.pointer or node.pointer,
        hint="correct the value, or the type of the field",
        severity=Severity.WARNING,
    )


def _set(graph: LogicalGraph, addresses: list[Address], value: Any, problems: list[Problem]) -> Values:
    """Return the value of a setting for one field and its copies, converted to the type of the field."""
    if not addresses:
        return {}
    node_id, place = addresses[0]
    node = graph.by_id[node_id]
    field = node.fields[place]
    is_text = isinstance(value, str) and is_estimate(node, field)  # an expression, perhaps
    if field.type in (*_CONVERTED, "Select") and not _is_left(value, field.type) and not is_text:
        try:
            value = convert_field(value, field.type, options=field.options)
        except Unusable as complaint:
            text = f"{field.name} of {node.name!r} cannot be set to {value!r:.60}: expected {complaint}"
            problems.append(problem("LG091", text, where=field.pointer or node.pointer, hint="give another value"))
            return {}
    return dict.fromkeys(addresses, value)


# The form of a logical graph with parameters: what a page or a program needs to ask for their values.


class TemplateForm(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters and configurations of a graph.

    Attributes
    ----------
    parameters : tuple of TemplateParameter
        The parameters; their values are those of the graph with the chosen configuration.
    nodes : tuple of TemplateParameter
        Fields of nodes that can be changed, as ``NODE.PARAM``: sizes of constructs, arguments and code of applications.
    configurations : tuple of str
        Names of the stored configurations, or their ids.
    configuration : str
        The chosen one; empty for none beside the active one.
    given : dict of str to str
        Values that were given, by parameter or ``NODE.PARAM``; they have priority.
    is_template : bool
        Whether a parameter has no value, so that the graph cannot be translated without one.
    """

    parameters: tuple[TemplateParameter, ...] = ()
    nodes: tuple[TemplateParameter, ...] = ()
    configurations: tuple[str, ...] = ()
    configuration: str = ""
    given: dict[str, str] = {}
    is_template: bool = False

    def shown(self, parameter: TemplateParameter) -> str:
        """Return the present value of a parameter as text; empty if it has none."""
        return self.given.get(parameter.name, value_text(parameter.value))


def form_of(graph: LogicalGraph, configuration: str, settings: tuple[str, ...]) -> TemplateForm | None:
    """Return the form of a graph as it was read; None if there is nothing to ask for.

    Parameters
    ----------
    graph : LogicalGraph
        The graph before its values are filled in.
    configuration : str
        Name or id of a stored configuration; empty for none.
    settings : tuple of str
        Settings, as texts ``NAME=VALUE``.
    """
    parameters, nodes = parameters_of(graph), tuple(_node_fields(graph))
    if not parameters and not nodes and not graph.configurations:
        return None
    values = variables_of(graph, configuration or None, ())
    valued = tuple(
        msgspec.structs.replace(parameter, value=values.get(parameter.name, parameter.value))
        if parameter.name in values
        else parameter
        for parameter in parameters
    )
    names = {entry.name for entry in (*parameters, *nodes)}
    pairs = [setting.partition("=")[::2] for setting in settings]
    given = {name.strip().removeprefix("global."): value.strip() for name, value in pairs}
    given = {name: value for name, value in given.items() if name in names}
    return TemplateForm(
        parameters=valued,
        nodes=nodes,
        configurations=tuple(entry.name or entry.id for entry in graph.configurations),
        configuration=configuration,
        given=given,
        is_template=is_template(tuple(parameter for parameter in valued if parameter.name not in given)),
    )


def _node_fields(graph: LogicalGraph) -> Iterator[TemplateParameter]:
    """Yield the fields of nodes that people change; a node is called by its id if another one has its name."""
    called = Counter(_names(node, graph)[-1] for node in graph.nodes)
    for node in graph.nodes:
        if node.kind in (NodeKind.GLOBALS, NodeKind.NOTE):
            continue
        construct = graph.by_id.get(node.embedded_in or "")
        name = _names(node, graph)[-1]
        name = name if name and called[name] == 1 else node.id
        for field in node.fields:
            if construct is not None and field.id in construct.by_id:
                continue  # it is shared with the construct
            is_argument = field.parameter_type == "ApplicationArgument" or field.name == "func_code"
            if field.is_port or not (is_argument or field.name in MULTIPLICITIES.get(node.category, ())):
                continue
            yield TemplateParameter(
                name=f"{name}.{field.name}",
                type=field.type,
                value=None if is_empty(field.effective, field.type) else field.effective,
                description=field.description,
                options=field.options,
                where=field.pointer,
            )


def value_text(value: object) -> str:
    """Return a value as it is written in a form and in settings."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
