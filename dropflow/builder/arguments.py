"""The arguments of a call, as ports and fields of the node that it adds."""

import base64
import inspect
import math
import pickle
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dropflow.builder.annotations import ANY, fits, list_of, port_type, shown
from dropflow.builder.draft import DraftField, DraftNode, type_name
from dropflow.builder.functions import AppFunction
from dropflow.builder.handles import CarriedValue, Data, Formula, GroupedData
from dropflow.engine.parameters import ENVIRONMENT_PREFIX, is_empty
from dropflow.errors import UsageError
from translator.formats.vocabulary import fold

if TYPE_CHECKING:
    from dropflow.builder.nodes import GraphNodes

__all__ = ["connect", "connect_inputs", "pickled_text"]

_LARGEST = 2**63
_NO_ARGUMENTS = frozenset(
    fold(name) for name in ("func_name", "Function Name", "func_code", "func", "func_defaults", "self")
)
"""Names that a function node has for itself, so that an argument cannot have them."""
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def connect(
    graph: "GraphNodes",
    node: DraftNode,
    function: AppFunction[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    """Connect the arguments of a call to the node of the function.

    Raises
    ------
    UsageError
        An argument is missing, unknown or of the wrong type, or comes from where the node cannot read it.
    """
    bound = _bound(graph, node, function, args, kwargs)
    parameters = {} if function.signature is None else function.signature.parameters
    for name, value in bound.items():
        if fold(name) in _NO_ARGUMENTS:
            raise UsageError(
                f"an argument of a graph cannot be called {name!r}", where=_at(graph, node), hint="rename it"
            )
        parameter = parameters.get(name)
        wanted = function.annotations.get(name, ANY)
        if parameter is not None and parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            for one in value:
                _connect_value(graph, node, name, one, wanted=wanted)
            continue
        _connect_value(graph, node, name, value, wanted=wanted, default=ANY if parameter is None else parameter.default)
    _refuse_late_group(graph, node, list(bound), list(parameters.values()))


def connect_inputs(graph: "GraphNodes", node: DraftNode, inputs: Mapping[str, Any]) -> None:
    """Connect values to ports and fields of their names, for applications that are no functions."""
    for name, value in inputs.items():
        _connect_value(graph, node, name, value)


def _bound(
    graph: "GraphNodes",
    node: DraftNode,
    function: AppFunction[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the arguments by the names of the parameters, those in ``**kwargs`` by their own."""
    if function.signature is None:
        return {**{f"input{place}": value for place, value in enumerate(args)}, **kwargs}
    try:
        bound = function.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(
            f"{function.title}{function.signature}: {error}",
            where=_at(graph, node),
            hint="correct the arguments of the call",
        ) from None
    found: dict[str, Any] = {}
    for name, parameter in function.signature.parameters.items():
        if name in bound.arguments:
            value = bound.arguments[name]
            found |= value if parameter.kind is inspect.Parameter.VAR_KEYWORD else {name: value}
        elif parameter.kind not in _VARIABLE and _is_field(parameter.default):
            found[name] = parameter.default  # shown in the editor, where it can be changed
    return found


def _connect_value(
    graph: "GraphNodes", node: DraftNode, name: str, value: Any, *, wanted: Any = ANY, default: Any = ANY
) -> None:
    if isinstance(value, list | tuple) and any(isinstance(one, Data | CarriedValue) for one in value):
        _connect_several(graph, node, name, value, wanted)
    elif isinstance(value, Data):
        graph.refuse_unreadable(value, node)
        _refuse_other_type(graph, node, name, graph.annotation_at(value, node), wanted)
        graph.link(value, node, name, type_=port_type(wanted))
    elif isinstance(value, CarriedValue):
        _refuse_other_type(graph, node, name, value.first.annotation, wanted)
        graph.link(
            value.first, node, name, type_=port_type(wanted), loop_aware=_enters_one_loop(graph, value.first, node)
        )
        node.set("group_start", value=True)
        value.readers.append((node, name))
    elif isinstance(value, GroupedData):
        _refuse_other_type(graph, node, name, value.annotation, wanted)
        node.set("group_start", value=True)
        node.fields.setdefault(name, DraftField(name, type="Object", usage="InputPort")).description = _GROUP
        value.is_used = True
    elif isinstance(value, Formula):
        node.set(name, value.text, value.type, kind="ApplicationArgument")
    else:
        _connect_literal(graph, node, name, value, wanted=wanted, default=default)


_GROUP = "The data of the group."


def _enters_one_loop(graph: "GraphNodes", data: Data, node: DraftNode) -> bool:
    """Return whether an edge enters one loop only. If it enters several, loop-aware would mean the first of all."""
    around = graph.drawing.path(data.node)
    return sum(one.category == "Loop" and one not in around for one in graph.drawing.path(node)) == 1


def _connect_several(graph: "GraphNodes", node: DraftNode, name: str, values: Any, wanted: Any) -> None:
    if len(values) < 2 or not all(isinstance(one, Data) for one in values):  # noqa: PLR2004 - several
        raise UsageError(
            f"the argument {name!r} is a list of {len(values)}, expected several data of the graph and nothing else",
            where=_at(graph, node),
            hint="give a single value without a list; make data of other values with graph.value(...)",
        )
    if len({one.node.id for one in values}) < len(values):
        raise UsageError(f"the argument {name!r} has the same data twice", where=_at(graph, node), hint="give it once")
    for one in values:
        _refuse_other_type(graph, node, name, list_of(one.annotation), wanted)
        graph.link(one, node, name)


def _connect_literal(graph: "GraphNodes", node: DraftNode, name: str, value: Any, *, wanted: Any, default: Any) -> None:
    if value is not default:
        _refuse_other_type(graph, node, name, ANY if value is None else type(value), wanted)
    _refuse_hidden(graph, node, name, value)
    kind = "Float" if wanted is float and isinstance(value, int) and not isinstance(value, bool) else type_name(value)
    if value is None and default is None:
        return
    # A blank field means the default of the function, so a blank value becomes data.
    is_blank = is_empty(value, kind) and default is not value and default is not ANY
    if _is_field(value) and not is_blank and value is not None:
        node.set(name, value, kind, kind="ApplicationArgument")
    else:
        graph.link(graph.value_in(node.inside, value, f"{node.name} {name}"), node, name)


def _is_field(value: Any) -> bool:
    """Return whether a value can be written into a field, and is then read as it was."""
    if type(value) is list:
        return bool(value) and all(one is None or _is_field(one) for one in value)
    if type(value) is dict:
        return bool(value) and all(type(key) is str and (one is None or _is_field(one)) for key, one in value.items())
    if type(value) is str:
        return not value.startswith(ENVIRONMENT_PREFIX) and value == value.strip()
    return (
        type(value) is bool
        or (type(value) is int and abs(value) < _LARGEST)
        or (type(value) is float and math.isfinite(value))
    )


def pickled_text(value: Any) -> str:
    """Return a value as the initial content of a memory drop: a pickle in base64.

    Raises
    ------
    UsageError
        It cannot be pickled.
    """
    import cloudpickle  # noqa: PLC0415 - most graphs have no such values

    try:
        body = pickle.dumps(value, protocol=5)
        if b"__main__" in body:
            body = cloudpickle.dumps(value, protocol=5)
    except Exception:  # noqa: BLE001 - a value may raise anything when it is pickled
        try:
            body = cloudpickle.dumps(value, protocol=5)
        except Exception as error:
            raise UsageError(
                f"a {type(value).__name__} cannot be written into a graph: {error}",
                hint="give what it is made from, and make it in the function",
            ) from error
    return base64.b64encode(body).decode()


def _refuse_other_type(graph: "GraphNodes", node: DraftNode, name: str, given: Any, wanted: Any) -> None:
    if given is ANY or wanted is ANY or fits(given, wanted):
        return
    raise UsageError(
        f"the argument {name!r} is {shown(given)}, expected {shown(wanted)}",
        where=_at(graph, node),
        hint="convert it in a function between them, or correct the annotations",
    )


def _refuse_hidden(graph: "GraphNodes", node: DraftNode, name: str, value: Any) -> None:
    """Raise if data of the graph are inside a value, where they would not become an edge."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    if any(isinstance(one, Data | CarriedValue | GroupedData | Formula | dict) and _is_handle(one) for one in inner):
        raise UsageError(
            f"the argument {name!r} is a {type(value).__name__} with data or parameters of the graph in it",
            where=_at(graph, node),
            hint="give each as an argument of its own, or data as a list of nothing else",
        )


def _is_handle(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_is_handle, value.values()))
    return isinstance(value, Data | CarriedValue | GroupedData | Formula)


def _refuse_late_group(
    graph: "GraphNodes", node: DraftNode, given: list[str], parameters: list[inspect.Parameter]
) -> None:
    """Raise if the data of a group are not for the first argument without another value: their port has no name."""
    grouped = [name for name in given if node.fields.get(name) is not None and node.fields[name].description == _GROUP]
    if not grouped:
        return
    lacking = [
        one.name for one in parameters if one.kind not in _VARIABLE and one.name not in set(given) - set(grouped)
    ]
    if len(grouped) > 1 or (lacking and lacking[0] != grouped[0]):
        raise UsageError(
            f"the data of a group are given for {grouped[-1]!r}",
            where=_at(graph, node),
            hint=f"give them once, for the first argument: {lacking[0]!r}",
        )
    del node.fields[grouped[0]]  # the translator makes the edge, to a port without a name


def _at(graph: "GraphNodes", node: DraftNode) -> str:
    return f"{node.name} in graph {graph.name}"
