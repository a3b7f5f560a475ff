"""Templates: logical graphs with parameters. Their list has all that a form needs: types, ranges and descriptions.

Parameters are declared by the fields of GlobalVariables nodes. A placeholder in a number of a node, such as ``{n}`` or
``{n} * 2`` copies, is a parameter without being declared; what is known about the field is then known about it. A graph
is a *template* if one of its parameters has no value, so that it has to be filled in first.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from dropflow.failure import Problem
from dropflow.graph.components import is_empty
from translator.expressions import names_in
from translator.logical import Field, LogicalGraph, LogicalNode, NodeKind
from translator.problem_codes import problem

MULTIPLICITIES: Mapping[str, tuple[str, ...]] = {
    "Scatter": ("num_of_copies",),
    "Gather": ("num_of_inputs",),
    "Loop": ("num_of_iter",),
    "Mpi": ("num_of_procs",),
    "MKN": ("m", "k", "n"),
}
"""Fields with the sizes of constructs, by category."""

_RANGES: Mapping[str, tuple[float, float | None]] = {
    "num_of_procs": (1, None),
    "num_cpus": (1, None),
    "num_gpus": (0, None),
    "n_tries": (1, None),
    "k": (0, None),
    "n": (1, None),
    "execution_time": (0, None),
    "data_volume": (0, None),
    "input_error_threshold": (0, 100),
}
_WHOLE = frozenset({"num_cpus", "num_gpus", "n_tries", "num_of_procs"})
_NUMBERS: Mapping[str, Callable[[float], int | float | bool]] = MappingProxyType(
    {"Integer": math.ceil, "Float": float, "Boolean": bool}
)
"""Types of parameters that graphs cannot be translated without, and how to make a value of them."""


class TemplateParameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of a template.

    Attributes
    ----------
    name : str
        Name in placeholders and settings.
    type : str
        EAGLE's type, such as ``Integer``.
    value : Any
        Its value; None if it has to be given.
    description : str
        What it means, from the graph.
    minimum, maximum : float or None
        Range of a number; None for no limit.
    options : tuple of str
        Allowed values of a Select.
    used_in : tuple of str
        The fields that use it.
    where : str
        JSON pointer of its declaration, or of its first use.
    """

    name: str
    type: str = "String"
    value: Any = None
    description: str = ""
    minimum: float | None = None
    maximum: float | None = None
    options: tuple[str, ...] = ()
    used_in: tuple[str, ...] = ()
    where: str = ""


def parameters_of(graph: LogicalGraph) -> tuple[TemplateParameter, ...]:
    """Return the parameters of a graph: those that are declared, then the others in the order of their first use."""
    parameters = {
        field.name: TemplateParameter(
            name=field.name,
            type=field.type,
            value=None if is_empty(field.effective, field.type) else field.effective,
            description=field.description,
            minimum=field.minimum,
            maximum=field.maximum,
            options=field.options,
            where=field.pointer,
        )
        for node in graph.nodes
        if node.kind is NodeKind.GLOBALS
        for field in node.fields
    }
    for node in graph.nodes:
        if node.kind in (NodeKind.GLOBALS, NodeKind.NOTE):
            continue
        for field in node.fields:
            if isinstance(field.effective, str):
                _add_uses(parameters, node, field, field.effective)
    return tuple(parameters.values())


def _add_uses(parameters: dict[str, TemplateParameter], node: LogicalNode, field: Field, text: str) -> None:
    is_number = is_numeric(node, field)
    for name in names_in(text):
        if name not in parameters and not is_number:
            continue  # braces in commands and paths mean other things
        known = parameters.get(name)
        is_whole = is_number and text.strip().strip("~${}") == name
        low, high = _range(field) if is_whole else (None, None)
        if known is None:
            known = TemplateParameter(
                name=name,
                type=_type(node, field) if is_whole else "Float",
                description=field.description if is_whole else "",
                where=field.pointer,
            )
        use = f"{field.name} of {node.category} {node.name!r}"
        parameters[name] = msgspec.structs.replace(
            known,
            minimum=known.minimum if known.minimum is not None else low,
            maximum=known.maximum if known.maximum is not None else high,
            description=known.description or (field.description if is_whole else ""),
            used_in=known.used_in if use in known.used_in else (*known.used_in, use),
        )


def is_numeric(node: LogicalNode, field: Field) -> bool:
    """Return whether a field is a number, by its type or because it is the size of a construct."""
    if field.is_port:
        return False
    return field.type in ("Integer", "Float") or field.name in MULTIPLICITIES.get(node.category, ())


def _type(node: LogicalNode, field: Field) -> str:
    return "Integer" if field.name in MULTIPLICITIES.get(node.category, ()) or field.name in _WHOLE else field.type


def _range(field: Field) -> tuple[float | None, float | None]:
    if field.minimum is not None or field.maximum is not None:
        return field.minimum, field.maximum
    named = {name for names in MULTIPLICITIES.values() for name in names}
    return _RANGES.get(field.name, (0, None) if field.name in named else (None, None))


def is_template(parameters: tuple[TemplateParameter, ...]) -> bool:
    """Return whether a parameter has no value, so that the graph has to be filled in."""
    return any(parameter.value is None and parameter.used_in for parameter in parameters)


def without_number(
    parameters: tuple[TemplateParameter, ...], values: Mapping[str, Any]
) -> Iterator[tuple[Problem, str, int | float | bool]]:
    """Yield the parameters that are numbers or truth values, are used, and have no value.

    Parameters
    ----------
    parameters : tuple of TemplateParameter
        Those of the graph.
    values : mapping of str to Any
        The values of those that the graph declares.

    Yields
    ------
    Problem
        LG090.
    str
        The name of the parameter.
    int, float or bool
        A value of its type and range, with which the rest of the graph can be checked.
    """
    for parameter in parameters:
        if parameter.type not in _NUMBERS or not parameter.used_in or parameter.name not in values:
            continue
        if not is_empty(values[parameter.name], parameter.type):
            continue
        hint = f"give it one in the form of the translator, or with --set {parameter.name}=VALUE"
        finding = problem("LG090", f"the parameter {parameter.name!r} has no value", where=parameter.where, hint=hint)
        least = 1 if parameter.minimum is None else parameter.minimum
        yield (
            finding,
            parameter.name,
            _NUMBERS[parameter.type](least if parameter.maximum is None else min(least, parameter.maximum)),
        )


def check_ranges(
    parameters: tuple[TemplateParameter, ...], given: Mapping[str, Any]
) -> Iterator[tuple[Problem, str, Any]]:
    """Yield LG091, the name and a valid value for each parameter whose given value is out of its range or options.

    With the valid value in its place, the fields that use the parameter are not refused as well.
    """
    for parameter in parameters:
        if parameter.name not in given:
            continue
        value = given[parameter.name]
        if parameter.options and str(value) not in parameter.options:
            text = f"parameter {parameter.name!r} is {value!r:.60}, expected one of {', '.join(parameter.options)}"
            finding = problem("LG091", text, where=parameter.name, hint="give one of these values")
            yield finding, parameter.name, parameter.options[0]
            continue
        number = _number(value)
        low, high = parameter.minimum, parameter.maximum
        if number is None or ((low is None or number >= low) and (high is None or number <= high)):
            continue
        wanted = f"at least {low:g}" if high is None else f"at most {high:g}" if low is None else f"{low:g} to {high:g}"
        text = f"parameter {parameter.name!r} is {value!r:.60}, expected {wanted}"
        nearest = high if low is None or (high is not None and number > high) else low
        finding = problem("LG091", text, where=parameter.name, hint="give a value in this range")
        yield (
            finding,
            parameter.name,
            parameter.value if nearest is None else _NUMBERS.get(parameter.type, float)(nearest),
        )


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
