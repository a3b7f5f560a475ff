"""Components: the applications and data classes of graphs, with their ports, parameters, and the parser of values.

EAGLE stores typed JSON for some types and text for others, old files store everything as text, and values may refer to
environment variables (``$DLG_ROOT``). `convert` turns one such value into a Python value, or raises an error that says
what was expected; `read` does this for all parameters of a component, and reports all errors together.

No value is evaluated as code: structured values are JSON or Python literals.
"""

import ast
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from dropflow.errors import AttemptTimeoutError, BadParameterError
from dropflow.graph.templates import Argument, Kind, Template

ENVIRONMENT_PREFIX = "$DLG_"
"""A value that consists of a variable with this prefix is replaced by the value of the variable."""
_REFERENCE = re.compile(r"\$(DLG_\w+)")
_SEPARATORS = re.compile(r"[\s_.-]+")
_TRUE = frozenset({"true", "1"})
_FALSE = frozenset({"false", "0"})
TEXT_TYPES = frozenset({"string", "str", "password", "select", ""})
_INTEGERS = ("integer", "int")
_SHOWN_CHARACTERS = 60
"""Characters of a value in a message."""


# The definition of a component: an application or data class, with its parameters and ports.
#
# One definition serves three readers: the run-time parser of its parameters, its entry in the palette
# (`palettes.build`) and its page in the reference.


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A typed parameter.

    Attributes
    ----------
    type : str
        EAGLE's type name: ``String``, ``Integer``, ``Float``, ``Boolean``, ``Select``, ``Json``, ``Object``.
    minimum, maximum : float or None
        Inclusive bounds for numbers.
    options : tuple of str
        The values that a ``Select`` may have.
    aliases : tuple of str
        Other names that graphs use for it.
    """

    name: str
    type: str = "String"
    default: Any = ""
    description: str = ""
    parameter_type: str = "ApplicationArgument"
    minimum: float | None = None
    maximum: float | None = None
    options: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """A port that the component offers in the palette; graphs may add others.

    `usage` is ``InputPort``, ``OutputPort`` or ``InputOutput``.
    """

    name: str
    usage: str
    type: str = "Object"
    encoding: str = "pickle"
    description: str = ""


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """An application or data class, as users see it.

    Attributes
    ----------
    name : str
        Name in the palette, for example ``CopyApp``.
    kind : Kind
        Data or application.
    category : str
        EAGLE's category of a node made from it.
    dropclass : str
        The class name that graphs carry (DALiuGE's where there is one).
    aliases : tuple of str
        Older class names that mean the same.
    description : str
        One paragraph for the palette and the reference.
    construct : str
        ``Scatter`` or ``Gather`` when the palette also offers it as the application of such a construct.
    """

    name: str
    kind: Kind
    category: str
    dropclass: str
    description: str
    aliases: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    ports: tuple[Port, ...] = ()
    construct: str = ""


class Unusable(ValueError):  # noqa: N818 - it ends up in a BadParameterError, and is not an error of its own
    """A value that cannot be converted. Its text is what was expected."""


class Unset(Unusable):
    """A reference to an environment variable that is not set on this host."""


def fold(name: str) -> str:
    """Return `name` without case and separators: equal for ``Execution time`` and ``execution_time``."""
    return _SEPARATORS.sub("", name).lower()


def is_empty(value: Any, type_: str = "String") -> bool:
    """Return whether `value` means "not given": None, blank text, or the text ``None`` for a type that is not text."""
    if value is None:
        return True
    if not isinstance(value, str):
        return False
    text = value.strip()
    return not text or (text == "None" and type_.lower() not in TEXT_TYPES)


def expand(value: Any, environment: Mapping[str, str] | None = None) -> Any:
    """Return `value`, or the value of the environment variable that it names.

    Parameters
    ----------
    value : Any
        Only text that is ``$DLG_<name>`` as a whole is a reference; anything else is returned as it is.
    environment : mapping of str to str, optional
        Where variables are looked up; by default this process' environment, which is only read. ``$DLG_ROOT``
        is ``~/dlg`` where it is not set, as in DALiuGE.

    Raises
    ------
    Unset
        The variable is not set.
    """
    if not isinstance(value, str):
        return value
    match = _REFERENCE.fullmatch(value.strip())
    if match is None:
        return value
    variables = os.environ if environment is None else environment
    name = match[1]
    if name in variables:
        return variables[name]
    if name == "DLG_ROOT":
        return str(Path.home() / "dlg")
    raise Unset(f"a set environment variable ({name} is not set)")


def convert(
    value: Any, type_: str, *, options: Iterable[str] = (), environment: Mapping[str, str] | None = None
) -> Any:
    """Return one value, converted to its type.

    Parameters
    ----------
    value : Any
        As found in a graph, on the command line or in a configuration; not empty (see `is_empty`).
    type_ : str
        EAGLE's type name, in any case: ``Integer``, ``Float``, ``Boolean``, ``Select``, ``Json``, ``String`` and their
        spellings in older files (``int``, ``Complex``, ``list``...). Values of other types (``Object.x``) stay as they
        are.
    options : iterable of str
        What a ``Select`` may be; matched without regard to case, returned as spelled here.
    environment : mapping of str to str, optional
        See `expand`.

    Returns
    -------
    Any
        int, float, bool, str, or the value of a JSON text or Python literal.

    Raises
    ------
    Unusable
        Its text says what was expected.

    Examples
    --------
    >>> convert("3.0", "Integer"), convert("TRUE", "Boolean"), convert("(1, 2)", "Json")
    (3, True, (1, 2))
    """
    value = expand(value, environment)
    kind = type_.strip().lower()
    if kind == "select":
        return _select(value, tuple(options))
    converter = _CONVERTERS.get(kind)
    return converter(value) if converter else value


def convert_field(value: Any, type_: str, *, options: Iterable[str] = ()) -> Any:
    """Return the value of a field of a graph, as `convert`, but keep a fraction in a field declared Integer.

    Editors declare many fields Integer in which people write 0.5. A component whose own parameter is an integer still
    refuses it.

    Raises
    ------
    Unusable
        Its text says what was expected.
    """
    try:
        return convert(value, type_, options=options)
    except Unusable:
        number = _number(expand(value)) if type_.strip().lower() in _INTEGERS else None
        if number is None:
            raise
        return number


def read(component: Component, template: Template, environment: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    """Return the values of all parameters of `component` in the node `template`.

    Names match exactly, or otherwise by aliases, in any case and with any separators. An empty value means the
    default. The value of a port only stands for its data, so one that cannot be used counts as empty.

    Parameters
    ----------
    component : Component
        Defines the parameters.
    template : Template
        The node whose arguments are read.
    environment : mapping of str to str, optional
        See `expand`.

    Returns
    -------
    mapping of str to Any
        Read-only; one entry for each parameter of `component`, under its canonical name.

    Raises
    ------
    BadParameterError
        Lists every parameter that cannot be used: its name, value and what was expected.
    """
    values: dict[str, Any] = {}
    complaints: dict[str, tuple[str, Unusable]] = {}
    for parameter in component.parameters:
        argument = find(template.arguments, parameter.name, parameter.aliases, parameter.type)
        try:
            values[parameter.name] = _value(parameter, argument, environment)
        except Unusable as problem:
            name = argument.name if argument else parameter.name
            shown = repr(argument.value if argument else parameter.default)[:_SHOWN_CHARACTERS]
            complaints[name] = (f"parameter '{name}' is {shown}, expected {problem}", problem)
    if complaints:
        raise BadParameterError(
            "; ".join(text for text, _ in complaints.values()),
            fields=tuple(complaints),
            where=template.app_name or template.name or template.key,
            hint=f"correct the fields of this {component.name} node, or give them with --set",
            of_host=all(isinstance(problem, Unset) for _, problem in complaints.values()),
        )
    return MappingProxyType(values)


def find(
    arguments: Iterable[Argument], name: str, aliases: Iterable[str] = (), type_: str = "String"
) -> Argument | None:
    """Return the argument with this name, or one whose name differs by case, separators or is an alias; or None.

    Arguments with a value come before those without. Ports that only write have no value.
    """
    candidates = [argument for argument in arguments if argument.usage != "OutputPort"]
    wanted = {fold(name), *(fold(alias) for alias in aliases)}
    exact = [argument for argument in candidates if argument.name == name]
    similar = [argument for argument in candidates if argument.name != name and fold(argument.name) in wanted]
    alike = exact + similar
    return next((argument for argument in alike if not is_empty(argument.value, type_)), alike[0] if alike else None)


def _value(parameter: Parameter, argument: Argument | None, environment: Mapping[str, str] | None) -> Any:
    if argument is None or is_empty(argument.value, parameter.type):
        return parameter.default
    try:
        value = convert(argument.value, parameter.type, options=parameter.options, environment=environment)
        _check_bounds(value, parameter)
    except Unusable:
        if argument.is_port:
            return parameter.default
        raise
    return value


def _check_bounds(value: Any, parameter: Parameter) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    low, high = parameter.minimum, parameter.maximum
    # Comparisons with NaN are false: written like this, NaN is out of bounds.
    if (low is not None and not value >= low) or (high is not None and not value <= high):
        span = " and ".join(
            text for text in (low is not None and f"at least {low:g}", high is not None and f"at most {high:g}") if text
        )
        raise Unusable(f"{_article(parameter.type)} of {span}")


def _article(type_: str) -> str:
    return f"{'an' if type_[:1] in 'AEIOU' else 'a'} {type_}"


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise Unusable("an Integer")
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        text = value.strip()
        try:
            return int(text)
        except ValueError:
            value = _float_or_none(text)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise Unusable("an Integer")


def _float(value: Any) -> float:
    if isinstance(value, str):
        value = _float_or_none(value.strip())
    if value is None or isinstance(value, bool) or not isinstance(value, int | float):
        raise Unusable("a Float")
    try:
        return float(value)
    except OverflowError:
        raise Unusable("a Float") from None


def _number(value: Any) -> float | None:
    """Return the finite number that `value` is, or has as text; None if there is none."""
    number = _float_or_none(value.strip()) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        return None
    return number


def _float_or_none(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _boolean(value: Any) -> bool:
    """Return a boolean as EAGLE and DALiuGE write it: JSON booleans, 0 and 1, and their texts in any case."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if isinstance(value, float) and value in (0.0, 1.0):
        return value == 1.0
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise Unusable("a Boolean: true, false, 1 or 0")


def _select(value: Any, options: tuple[str, ...]) -> str:
    text = str(value).strip()
    if not options:
        return text
    for option in options:
        if option.lower() == text.lower():
            return option
    raise Unusable(f"one of {', '.join(options)}")


def _structured(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise Unusable("JSON or a Python literal (code is not evaluated)") from None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_INTEGERS, _integer),
    **dict.fromkeys(("float", "double", "number"), _float),
    **dict.fromkeys(("boolean", "bool"), _boolean),
    **dict.fromkeys(("json", "complex", "list", "dict", "tuple", "array", "eval"), _structured),
    **dict.fromkeys(("string", "str", "password", ""), _text),
}


# How long one attempt of an application may take: the field ``timeout`` that every application has.

TIMEOUT = Parameter(
    name="timeout",
    type="Float",
    default=0.0,
    minimum=0.0,
    maximum=1e9,
    parameter_type="ComponentParameter",
    description="Seconds that one attempt may take; then it is stopped and has failed. 0 for no limit. An application "
    "argument of this name is the same, unless the application uses it itself: a Python function, a class of users, "
    "a command that mentions {timeout} or has its arguments added.",
)

_ANY_APP = Component(
    name="application", kind=Kind.APP, category="", dropclass="", description="", parameters=(TIMEOUT,)
)


def time_limit(template: Template) -> float:
    """Return the seconds that an attempt of `template` may take; 0 for no limit.

    An application argument of that name, and a port, belong to the application itself;
    `dropflow.apps.needs.with_time_limit` makes it a field of the node where the application does not use it.

    Raises
    ------
    BadParameterError
        The value of the field is not a number from 0 to 1e9.
    """
    field = template.argument(TIMEOUT.name)
    if template.kind is Kind.DATA or field is None or field.is_port or field.parameter_type == "ApplicationArgument":
        return 0.0
    return float(read(_ANY_APP, template)[TIMEOUT.name])


def timed_out(seconds: float) -> AttemptTimeoutError:
    """Return the error of an attempt that took longer than its limit."""
    return AttemptTimeoutError(
        f"the attempt took longer than its limit of {seconds:g} s and was stopped",
        hint="raise the field 'timeout' of this node, or set it to 0 for no limit",
    )
