"""How the fields and inputs of a node become the arguments of a function call.

A parameter of the function takes its value from the first of these that has one:

1. the input port of its name, if data with content are connected;
2. an input that belongs to no parameter (a port without a name, or of another name), in order, if nothing below has a
   value either;
3. the field of its name, unless it is blank;
4. ``func_defaults``;
5. the function's own default.

Empty data and blank text count only where the function demands a value and nothing else gives one. A parameter with
none of these is an error that names it.
What is left over goes into ``*args`` (positional fields, unnamed inputs) and ``**kwargs`` (the others); what the
function cannot take at all is left out, and the log says so. Ports of type ``Event`` only order drops.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dropflow.apps.api import Context, InputData, OutputData
from dropflow.engine.parameters import Unusable, convert, fold, is_empty
from dropflow.errors import AppError, BadParameterError
from dropflow.graph.templates import Argument, Template

__all__ = ["Bound", "bind", "encoding_of", "field_values", "is_event"]

_NEVER_ARGUMENTS = frozenset(
    fold(name)
    for name in ("func_name", "Function Name", "func_code", "func", "func_defaults", "func_arg_mapping", "self")
)
_OF_THE_DROP = frozenset(
    fold(name)
    for name in (
        *("dropclass", "appclass", "Application Class", "base_name", "execution_time", "num_cpus", "No. of CPUs"),
        *("group_start", "group_end", "log_level", "n_tries", "input_error_threshold", "n_effective_inputs"),
        *("input_parser", "output_parser", "pickle", "persist", "streaming", "block_skip", "data_volume"),
    )
)
"""Fields that EAGLE keeps on every node. A function may have an argument of such a name: then the field must be an
application argument to be meant for it."""

_PARSED = frozenset({"integer", "int", "float", "boolean", "bool", "json", "complex", "list", "dict", "tuple"})
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Bound:
    """The arguments of one call, and the outputs that the function itself writes."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    written: Mapping[str, OutputData] = field(default_factory=dict)
    """By port: outputs whose path is an argument of the call."""


def is_event(arguments: Mapping[str, Argument], port: str) -> bool:
    """Whether `port` only orders drops and carries no data."""
    argument = arguments.get(port)
    return argument is not None and argument.type.lower() == "event"


def encoding_of(arguments: Mapping[str, Argument], port: str, parser: str) -> str | None:
    """Encoding of `port`: its own, else the older `parser` field of the node, else None for the default."""
    argument = arguments.get(port)
    if argument is not None and argument.encoding:
        return argument.encoding
    old = arguments.get(parser)
    return str(old.value) if old is not None and not is_empty(old.value) else None


def field_values(template: Template) -> dict[str, Any]:
    """The typed values of the fields that can be arguments; blank ones are left out.

    Raises
    ------
    BadParameterError
        Lists every field whose value does not fit its type.
    """
    values: dict[str, Any] = {}
    complaints = []
    for argument in template.arguments:
        if argument.usage == "OutputPort" or fold(argument.name) in _NEVER_ARGUMENTS:
            continue
        if is_empty(argument.value, argument.type) or argument.type.lower() == "event":
            continue
        try:
            values[argument.name] = convert(argument.value, argument.type, options=argument.options)
        except Unusable as problem:
            if not argument.is_port:
                complaints.append(f"argument '{argument.name}' is {argument.value!r}, expected {problem}")
    if complaints:
        raise BadParameterError("; ".join(complaints), where=template.name, hint="correct these fields of the node")
    return values


def bind(
    function: Callable[..., Any],
    context: Context,
    values: Mapping[str, Any],
    defaults: Mapping[str, Any],
    *,
    without: Sequence[str] = (),
) -> Bound:
    """The call of `function` that one attempt makes.

    Parameters
    ----------
    function : callable
        What will be called.
    context : Context
        The attempt, with its inputs and outputs.
    values : mapping of str to Any
        See `field_values`.
    defaults : mapping of str to Any
        ``func_defaults``.
    without : sequence of str
        Ports that are served otherwise.

    Raises
    ------
    AppError
        Lists the arguments that the function demands and nothing gives.
    """
    call = _Call(context, _parameters(function), dict(defaults))
    call.take_paths(without)
    call.take_inputs(without)
    call.take_fields(values)
    return call.bound(function)


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """Parameters by name; None for callables, many of them written in C, that do not tell."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None


class _Call:
    """A call while its arguments are being collected."""

    def __init__(
        self, context: Context, parameters: dict[str, inspect.Parameter] | None, values: dict[str, Any]
    ) -> None:
        self.context = context
        self.signed = parameters is not None
        self.parameters = parameters or {}
        self.values = {name: value for name, value in values.items() if self.accepts(name)}
        self.connected: set[str] = set()
        self.empty: dict[str, Any] = {}  # what data without content stand for
        self.spare: list[tuple[str, Any]] = []  # inputs that no parameter is called after
        self.more: list[Any] = []
        self.named: dict[str, Any] = {}
        self.written: dict[str, OutputData] = {}

    def accepts(self, name: str) -> bool:
        parameter = self.parameters.get(name)
        return parameter is not None and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)

    def has(self, kind: Any) -> bool:
        return not self.signed or any(parameter.kind is kind for parameter in self.parameters.values())

    def take_paths(self, without: Sequence[str]) -> None:
        """Output ports with path encoding: the function gets the path, and writes there itself."""
        for output in self.context.outputs:
            port = output.port
            wanted = encoding_of(self.context.arguments, port, "output_parser") == "path"
            if wanted and self.accepts(port) and port not in self.written and port not in without:
                self.written[port] = output
                self.set(port, str(output.path))

    def take_inputs(self, without: Sequence[str]) -> None:
        arguments = self.context.arguments
        for data in self.context.inputs:
            port = data.port
            if port in without or port in self.written or is_event(arguments, port):
                continue
            if not data.ok:
                self.context.log(f"input '{port or data.name}' failed; working without it", "WARNING")
            elif self.accepts(port) and port not in self.connected:
                if data.is_directory or data.size or not data.in_memory:
                    self.set(port, self.read(data))
                else:
                    self.empty.setdefault(port, self.read(data))
            else:
                self.spare.append((port, self.read(data)))

    def take_fields(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            argument = self.context.arguments[name]
            application = argument.parameter_type == "ApplicationArgument"
            if fold(name) in _OF_THE_DROP and not (application and self.accepts(name)):
                continue
            if self.accepts(name):
                if name not in self.connected:
                    self.values[name] = value
            elif application and not argument.is_port:
                self.take_left_over(argument, value)

    def take_left_over(self, argument: Argument, value: Any) -> None:
        if (argument.positional or not self.signed) and self.has(inspect.Parameter.VAR_POSITIONAL):
            self.more.append(value)
        elif self.has(inspect.Parameter.VAR_KEYWORD):
            self.named[argument.name] = value
        else:
            self.context.log(f"the function has no argument '{argument.name}'; its value is not used", "WARNING")

    def set(self, name: str, value: Any) -> None:
        self.values[name] = value
        self.connected.add(name)

    def read(self, data: InputData) -> Any:
        """The value of an input; text at a port of another type is read as that type where it can be."""
        value = data.value(encoding_of(self.context.arguments, data.port, "input_parser"))
        argument = self.context.arguments.get(data.port)
        if isinstance(value, str) and argument is not None and argument.type.lower() in _PARSED:
            try:
                return convert(value, argument.type)
            except Unusable:
                return value
        return value

    def bound(self, function: Callable[..., Any]) -> Bound:
        self.place_spare()
        self.values.update(
            {name: value for name, value in self.empty.items() if self.lacks(name) and self.demands(name)}
        )
        self.demand_all(function)
        args, kwargs = self.ordered()
        return Bound(args, kwargs, self.written)

    def place_spare(self) -> None:
        """Give inputs that no parameter is called after to what still lacks a value, in order."""
        lacking = [name for name in self.parameters if self.accepts(name) and self.lacks(name)]
        for port, value in self.spare:
            if lacking and (not port or self.demands(lacking[0])):
                self.values[lacking.pop(0)] = value
            elif self.has(inspect.Parameter.VAR_KEYWORD) and self.signed and port:
                self.named[port] = value
            elif self.has(inspect.Parameter.VAR_POSITIONAL):
                self.more.append(value)
            else:
                self.context.log(f"the function has no argument for the input '{port}'; it is not used", "WARNING")

    def lacks(self, name: str) -> bool:
        return name not in self.values

    def demands(self, name: str) -> bool:
        return self.parameters[name].default is inspect.Parameter.empty

    def demand_all(self, function: Callable[..., Any]) -> None:
        missing = [name for name in self.parameters if self.accepts(name) and self.lacks(name) and self.demands(name)]
        for name in list(missing):
            argument = self.context.arguments.get(name)
            if (
                argument
                and not argument.is_port
                and argument.type.lower() in ("string", "str")
                and argument.value == ""
            ):
                self.values[name] = ""
                missing.remove(name)
        if missing:
            names = ", ".join(f"'{name}'" for name in missing)
            title = getattr(function, "__qualname__", None) or repr(function)
            raise AppError(
                f"{title}() needs a value for {names}: no input is connected and the field is blank",
                hint="connect data to an input port of that name, or fill in the field",
            )

    def ordered(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments; by keyword where that is possible."""
        if not self.signed:
            return tuple(self.more), self.named
        args: list[Any] = []
        kwargs = dict(self.named)
        positional = [parameter for parameter in self.parameters.values() if parameter.kind in _POSITIONAL]
        only = [place for place, parameter in enumerate(positional) if parameter.kind is parameter.POSITIONAL_ONLY]
        given = [place for place in only if not self.lacks(positional[place].name)]
        by_place = len(positional) if self.more else (given[-1] + 1 if given else 0)
        for place, parameter in enumerate(positional):
            name = parameter.name
            if place < by_place:
                args.append(self.values.get(name, parameter.default))
        placed = {parameter.name for parameter in positional[:by_place]}
        kwargs.update({name: value for name, value in self.values.items() if name not in placed})
        return (*args, *self.more), kwargs
