"""Python functions as applications.

`dropflow.apps.functions.load_function` loads the function; its arguments are read here. The return value goes, whole,
to every output (as in DALiuGE: a tuple is not distributed), each with the encoding of its port. The one exception is a
dictionary whose keys are exactly the names of the node's output ports, two or more: then each port gets its own entry.
If the function has an argument named after an output port whose encoding is ``path`` or a format, the argument is a
path, and the function writes the content there itself. If the port is an input, too, the path has a copy of the input,
which the function changes. Outputs of type ``Event`` complete empty.
"""

import inspect
import json
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from dropflow.apps.app_interface import App, Context, InputData, OutputData
from dropflow.apps.check import signature_of
from dropflow.apps.encodings import canonical
from dropflow.apps.formats import FORMATS, CannotHoldError, refuse_other_format
from dropflow.apps.functions.load_function import (
    compile_source,
    import_object,
    is_pickled,
    object_from_pickle,
    object_from_source,
    refuse_name,
    refuse_source,
)
from dropflow.apps.parameters import describe_state, encoding_of, is_event
from dropflow.apps.runtime_environment import ENVIRONMENT_FIELDS, RuntimeEnvironment
from dropflow.errors import AppError, BadParameterError
from dropflow.graph.components import Component, Parameter, Port, Unset, Unusable, convert_field, fold, is_empty
from dropflow.graph.templates import GPU_FIELD, MEMORY_FIELDS, TWO_PORTS, Argument, Kind, Template
from dropflow.states import DropState

_NEVER_ARGUMENTS = frozenset(
    fold(name)
    for name in ("func_name", "Function Name", "func_code", "func", "func_defaults", "func_arg_mapping", "self")
)
_OF_THE_DROP = frozenset(
    fold(name)
    for name in (
        *("dropclass", "appclass", "Application Class", "base_name", "execution_time", "num_cpus", "No. of CPUs"),
        *MEMORY_FIELDS,
        GPU_FIELD,
        *ENVIRONMENT_FIELDS,
        *("group_start", "group_end", "log_level", "n_tries", "input_error_threshold", "n_effective_inputs", "timeout"),
        *("input_parser", "output_parser", "pickle", "persist", "streaming", "block_skip", "data_volume"),
    )
)
"""Fields that EAGLE keeps on every node. For a function with an argument of such a name, the field is used only if it
is an application argument."""

_PARSED = frozenset({"integer", "int", "float", "boolean", "bool", "json", "complex", "list", "dict", "tuple"})
_PATHS = frozenset({"path", *FORMATS})
"""Encodings of outputs that a function writes itself, if it has an argument of the port's name."""
_ANY_NAMED = inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
FUNCTION_PARAMETERS = (
    Parameter(
        name="func_name",
        parameter_type="ComponentParameter",
        aliases=("Function Name",),
        description="Dotted name of a function that can be imported, or the name of the function that func_code "
        "defines.",
    ),
    Parameter(
        name="func_code",
        parameter_type="ComponentParameter",
        description="Source of a module that defines the function, imports included; blank if it is imported.",
    ),
    Parameter(
        name="func_defaults",
        type="Json",
        default={},
        parameter_type="ComponentParameter",
        description="Values for arguments that neither an input nor a field gives, by name.",
    ),
)
SELF = "self"
_ENCODING = "dill"
_SHOWN_INPUTS = 5
"""Names of inputs in a message."""

# How the fields and inputs of a node become the arguments of a function call.
#
# A parameter of the function takes its value from the first of these that has one:
#
# 1. the input port of its name, if data with content are connected: one value, or a list in the order of the producers
#    if the graph collects (as a gather does) or more than one input was not skipped;
# 2. an input that belongs to no parameter (a port without a name, or with another name), in order, if none of the
#    following has a value;
# 3. the field of its name, unless it is blank;
# 4. ``func_defaults``;
# 5. the function's own default.
#
# Empty data and blank text are used only for a required parameter without any other value. A required parameter without
# a value is an error that names it. Remaining values go into ``*args`` (positional fields, unnamed inputs) and
# ``**kwargs`` (the others). Values that the function cannot take are left out, with a warning in the log. Ports of type
# ``Event`` only order drops.


@dataclass(frozen=True)
class Bound:
    """The arguments of one call, and the outputs that the function writes itself."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    written: Mapping[str, OutputData] = field(default_factory=dict)
    """Outputs whose path is an argument of the call, by port."""


class Signature:
    """The parameters of a callable; made once, because `inspect.signature` takes longer than most small functions.

    Parameters
    ----------
    function : callable or inspect.Signature
        Callables without a signature, such as many written in C, can be called with any arguments.
    title : str
        Name in messages; by default the name of the callable.
    """

    __slots__ = ("demanded", "known", "names", "parameters", "takes_more", "takes_named", "title")

    def __init__(self, function: Callable[..., Any] | inspect.Signature, title: str = "") -> None:
        try:
            signature = function if isinstance(function, inspect.Signature) else inspect.signature(function)
            self.parameters = tuple(signature.parameters.values())
            self.known = True
        except (TypeError, ValueError):
            self.parameters = ()
            self.known = False
        kinds = {parameter.kind for parameter in self.parameters}
        self.takes_more = not self.known or inspect.Parameter.VAR_POSITIONAL in kinds
        self.takes_named = not self.known or inspect.Parameter.VAR_KEYWORD in kinds
        named = [parameter for parameter in self.parameters if parameter.kind not in _VARIABLE]
        self.names = tuple(parameter.name for parameter in named)
        self.demanded = frozenset(parameter.name for parameter in named if parameter.default is parameter.empty)
        self.title = title or getattr(function, "__qualname__", None) or repr(function)


def field_values(template: Template) -> dict[str, Any]:
    """Return the typed values of the fields that can be arguments, without blank ones.

    Raises
    ------
    BadParameterError
        Lists all fields whose values do not fit their types.
    """
    values: dict[str, Any] = {}
    complaints: dict[str, tuple[str, Unusable]] = {}
    for argument in template.arguments:
        if argument.usage == "OutputPort" or fold(argument.name) in _NEVER_ARGUMENTS:
            continue
        if is_empty(argument.value, argument.type) or argument.type.lower() == "event":
            continue
        try:
            values[argument.name] = convert_field(argument.value, argument.type, options=argument.options)
        except Unusable as problem:
            if not argument.is_port:
                text = f"argument '{argument.name}' is {argument.value!r}, expected {problem}"
                complaints[argument.name] = (text, problem)
    if complaints:
        raise BadParameterError(
            "; ".join(text for text, _ in complaints.values()),
            fields=tuple(complaints),
            where=template.name,
            hint="correct these fields of the node",
            of_host=all(isinstance(problem, Unset) for _, problem in complaints.values()),
        )
    return values


def refuse_missing(
    signature: Signature,
    template: Template,
    values: Collection[str],
    defaults: Collection[str],
    *,
    inputs: Collection[str],
    outputs: Collection[str],
) -> None:
    """Raise if a required argument of the function certainly gets no value, as `bind` would for each call.

    Parameters
    ----------
    signature : Signature
        Signature of the function.
    template : Template
        The node.
    values, defaults : collection of str
        Names with a value in `field_values` and in ``func_defaults``.
    inputs, outputs : collection of str
        Names of the connected ports.

    Raises
    ------
    AppError
        As `bind`.
    """
    arguments = {argument.name: argument for argument in template.arguments}
    data = [port for port in inputs if not is_event(arguments, port)]
    if signature.takes_more or signature.takes_named or any(port not in signature.names for port in data):
        return  # an input whose port has no argument may become the value of any missing one
    paths = [port for port in outputs if encoding_of(arguments, port, "output_parser") in _PATHS]
    fields = [
        name
        for name, argument in arguments.items()
        if (name in values and _is_meant(argument)) or _is_blank_text(argument)
    ]
    wanted = signature.demanded.difference(data, paths, fields, defaults)
    lacking = [name for name in signature.names if name in wanted]
    if lacking:
        raise _lacks(signature.title, lacking)


def _is_meant(argument: Argument) -> bool:
    """Return whether a field is a value for the argument of its name, rather than a setting of the drop."""
    return argument.parameter_type == "ApplicationArgument" or fold(argument.name) not in _OF_THE_DROP


def _is_blank_text(argument: Argument) -> bool:
    return not argument.is_port and argument.type.lower() in ("string", "str") and argument.value == ""


def _lacks(title: str, names: Sequence[str], inputs: Collection[str] = ()) -> AppError:
    listed = ", ".join(f"'{name}'" for name in names)
    if set(names) <= set(inputs):
        return AppError(
            f"{title}() needs a value for {listed}: all inputs there failed or were skipped",
            hint="give the argument a default value in the function, or lower input_error_threshold",
        )
    return AppError(
        f"{title}() needs a value for {listed}: no input is connected and the field is blank",
        hint="connect data to an input port of that name, or fill in the field; with 0 copies nothing is connected",
    )


def bind(
    signature: Signature,
    context: Context,
    values: Mapping[str, Any],
    defaults: Mapping[str, Any],
    *,
    without: Sequence[str] = (),
) -> Bound:
    """Return the arguments of the call that one attempt makes.

    Parameters
    ----------
    signature : Signature
        Signature of the function.
    context : Context
        The attempt, with its inputs and outputs.
    values : mapping of str to Any
        See `field_values`.
    defaults : mapping of str to Any
        ``func_defaults``.
    without : sequence of str
        Ports to leave out.

    Raises
    ------
    AppError
        Lists the required arguments without a value.
    """
    call = _ArgumentCollector(signature, context, defaults)
    call.take_paths(without)
    call.take_inputs(without)
    call.take_fields(values)
    bound = call.bound()
    context.note_call(signature.names, bound.args, bound.kwargs)
    return bound


class _Spare:
    """The inputs at one port whose name is not a parameter of the function.

    Parameters
    ----------
    port : str
        Name of the port.
    values : list
        Values of the inputs that have content.
    inputs : int
        Number of inputs that were not skipped.
    is_collected : bool
        Whether the graph collects at the port.
    """

    def __init__(self, port: str, values: list[Any], *, inputs: int, is_collected: bool) -> None:
        self.port = port
        self.values = values
        self._inputs = inputs
        self._is_collected = is_collected

    def arguments(self, demanded: int) -> list[Any]:
        """Return the arguments: each value separately if enough required parameters are left, else one list of all."""
        is_each_taken = not self.port or self._inputs <= max(demanded, 1)
        return self.values if is_each_taken and not self._is_collected else [self.values]


class _ArgumentCollector:
    """Collects the arguments of one call."""

    def __init__(self, signature: Signature, context: Context, defaults: Mapping[str, Any]) -> None:
        self.signature = signature
        self.context = context
        self.arguments = context.arguments
        self.values = {name: value for name, value in defaults.items() if name in signature.names}
        self.connected: set[str] = set()
        self.empty: dict[str, Any] = {}  # values of inputs without content
        self.spare: list[_Spare] = []  # inputs without a parameter of their name
        self.more: list[Any] = []
        self.named: dict[str, Any] = {}
        self.written: dict[str, OutputData] = {}

    def take_paths(self, without: Sequence[str]) -> None:
        """Pass the paths of output ports for paths and formats: the function writes there itself."""
        for output in self.context.outputs:
            port = output.port
            if port not in self.signature.names or port in self.written or port in without:
                continue
            if encoding_of(self.arguments, port, "output_parser") in _PATHS:
                self.written[port] = output
                # For an input that it changes, this is the copy, at the path of the output.
                inputs = (
                    data.path for data in self.context.inputs if data.port == port and data.ok and data.is_private
                )
                self.set(port, str(next(inputs, output.path)))

    def take_inputs(self, without: Sequence[str]) -> None:
        ports: dict[str, list[InputData]] = {}
        for data in self.context.inputs:
            port = data.port
            if port in without or port in self.written or is_event(self.arguments, port):
                continue
            ports.setdefault(port, []).append(data)
            if not data.ok:
                self.context.log(
                    f"input '{port or data.name}' {describe_state(data.state)}; working without it", "WARNING"
                )
        for port, inputs in ports.items():
            self.take_port(port, inputs)

    def take_port(self, port: str, inputs: Sequence[InputData]) -> None:
        """Take the inputs at one port, in the order of the producers."""
        present = [data for data in inputs if data.ok]
        values = [self.read(data) for data in present]
        # After a branch, all inputs but one were skipped: the value is not a list.
        count = sum(data.state is not DropState.SKIPPED for data in inputs)
        is_collected = inputs[0].is_collected
        is_list = is_collected or count > 1
        if not (present or is_list):
            return
        if port not in self.signature.names:
            self.spare.append(_Spare(port, values, inputs=count, is_collected=is_collected))
        elif any(data.is_directory or data.size or not data.in_memory for data in present):
            self.set(port, values if is_list else values[0])
        else:
            self.empty[port] = values if is_list else values[0]

    def take_fields(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            argument = self.arguments[name]
            application = argument.parameter_type == "ApplicationArgument"
            accepted = name in self.signature.names
            if accepted and _is_meant(argument):
                if name not in self.connected:
                    self.values[name] = value
            elif application and not argument.is_port and fold(name) not in _OF_THE_DROP:
                self.take_left_over(argument, value)

    def take_left_over(self, argument: Argument, value: Any) -> None:
        if (argument.positional or not self.signature.known) and self.signature.takes_more:
            self.more.append(value)
        elif self.signature.takes_named:
            self.named[argument.name] = value
        else:
            self.context.log(f"the function has no argument '{argument.name}'; its value is not used", "WARNING")

    def set(self, name: str, value: Any) -> None:
        self.values[name] = value
        self.connected.add(name)

    def read(self, data: InputData) -> Any:
        """Return the value of an input. Text at a port of another type is converted to that type if possible."""
        value = data.value(encoding_of(self.arguments, data.port, "input_parser"))
        argument = self.arguments.get(data.port)
        if isinstance(value, str) and argument is not None and argument.type.lower() in _PARSED:
            try:
                return convert_field(value, argument.type)
            except Unusable:
                return value
        return value

    def bound(self) -> Bound:
        if self.spare:
            self.place_spare()
        missing = [name for name in self.signature.names if name in self.signature.demanded and name not in self.values]
        if missing:
            self.make_do(missing)
        args, kwargs = self.ordered()
        return Bound(args, kwargs, self.written)

    def place_spare(self) -> None:
        """Use inputs without a parameter of their name for parameters that have no value yet, in order."""
        lacking = [name for name in self.signature.names if name not in self.values]
        for spare in self.spare:
            demanded = sum(name in self.signature.demanded for name in lacking)
            for value in spare.arguments(demanded):
                if lacking and (not spare.port or lacking[0] in self.signature.demanded):
                    self.values[lacking.pop(0)] = value
                elif self.signature.known and self.signature.takes_named and spare.port:
                    self.named[spare.port] = value
                elif self.signature.takes_more:
                    self.more += spare.values if value is spare.values else [value]
                else:
                    self.context.log(
                        f"the function has no argument for the input '{spare.port}'; it is not used", "WARNING"
                    )

    def make_do(self, missing: list[str]) -> None:
        """Use empty data and blank text for required arguments without any other value."""
        for name in missing:
            argument = self.arguments.get(name)
            if name in self.empty:
                self.values[name] = self.empty[name]
            elif argument is not None and _is_blank_text(argument):
                self.values[name] = ""
        lacking = [name for name in missing if name not in self.values]
        if lacking:
            raise _lacks(self.signature.title, lacking, [data.port for data in self.context.inputs])

    def ordered(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and keyword arguments; by keyword if possible."""
        kwargs = {**self.values, **self.named}
        positional = [parameter for parameter in self.signature.parameters if parameter.kind in _POSITIONAL]
        by_place = len(positional) if self.more else 0
        for place, parameter in enumerate(positional):
            if parameter.kind is parameter.POSITIONAL_ONLY and parameter.name in kwargs:
                by_place = max(by_place, place + 1)
        args = [kwargs.pop(parameter.name, parameter.default) for parameter in positional[:by_place]]
        return (*args, *self.more), kwargs


class PyFuncApp(App):
    """Calls a Python function."""

    component = Component(
        name="PyFuncApp",
        kind=Kind.APP,
        category="PyFuncApp",
        dropclass="dlg.apps.pyfunc.PyFuncApp",
        description="Calls a Python function: its arguments come from the input ports and fields of their names, its "
        "return value goes to every output, each with the encoding of its port.",
        parameters=FUNCTION_PARAMETERS,
    )
    environment_fields: ClassVar[tuple[str, ...]] = ENVIRONMENT_FIELDS

    def __init__(self, template: Template) -> None:
        super().__init__(template)
        self.environment = RuntimeEnvironment.of(template)
        name, source = str(self.parameters["func_name"]).strip(), str(self.parameters["func_code"])
        if self.needs_function and not name and not source.strip():
            raise BadParameterError(
                f"the node '{template.name}' names no function: func_name and func_code are both blank",
                hint="give the dotted name of a function in func_name, or its source in func_code",
            )
        self.function_name = name
        self._source = source
        # Compiled now, so that a syntax error is found before anything runs; executed at the first attempt.
        self._code = compile_source(source, template.name) if source.strip() and not is_pickled(source) else None
        if not self.environment.are_plain and (is_pickled(source) or (not source.strip() and "." not in name)):
            raise BadParameterError(
                f"the function of '{template.name}' is called in another environment, which needs its source or its "
                "dotted name",
                fields=("func_code",),
                where=template.name,
                hint="give the source in func_code",
            )
        self.values = field_values(template)
        if not isinstance(self.parameters["func_defaults"], dict):
            raise BadParameterError(
                f"func_defaults is {self.parameters['func_defaults']!r}, expected an object with a value for each "
                "argument",
                fields=("func_defaults",),
                where=template.name,
            )

    @classmethod
    def uses(cls, argument: Argument, template: Template) -> bool:  # noqa: ARG003 - as in App
        """Return True: any field may be an argument of the function."""
        return True

    @property
    def needs_function(self) -> bool:
        """Whether the node must name a function."""
        return True

    def needs(self) -> tuple[str, ...]:
        """Return the function, unless the node has its source."""
        image = self.environment.run_in
        own: tuple[str, ...] = () if not image else ("container:engine", f"image:{image}")
        if self.environment.is_own and not self._source.strip() and "." in self.function_name:
            own = (f"function:{self.function_name}",)
        return (*own, *self.environment.needs)

    def check(self) -> None:
        """Raise if the function certainly does not exist. Runs and imports nothing of the graph."""
        if self._code is not None:
            refuse_source(self._source, self.function_name, self.template.name)
        elif not self._source.strip() and "." not in self.function_name:
            refuse_name(self.function_name, self.template.name)

    def check_ports(self, inputs: Collection[str], outputs: Collection[str], *, is_certain: bool) -> None:
        """Raise if an encoding does not exist, or a required argument certainly gets no value."""
        self.refuse_encodings(inputs, outputs)
        parameters = signature_of(self._source, self.function_name) if is_certain and self._code is not None else None
        if parameters is not None:
            signature = Signature(parameters, title=self.function_name)
            refuse_missing(
                signature,
                self.template,
                self.values,
                self.parameters["func_defaults"],
                inputs=inputs,
                outputs=outputs,
            )

    def refuse_encodings(self, inputs: Iterable[str], outputs: Iterable[str]) -> None:
        """Raise if a connected port has an unknown encoding. Ports for events are not checked."""
        arguments = {argument.name: argument for argument in self.template.arguments}
        for ports, parser in ((inputs, "input_parser"), (outputs, "output_parser")):
            for port in ports:
                if not is_event(arguments, port):
                    canonical(encoding_of(arguments, port, parser))

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """``func_defaults``: plain values, or pickles in base64 as DALiuGE's Python API writes them.

        Unpickled at the first attempt: a pickle is code of the graph, which is executed only in a run.
        """
        return {
            str(name): object_from_pickle(value, self.template.name)
            if isinstance(value, str) and is_pickled(value)
            else value
            for name, value in self.parameters["func_defaults"].items()
        }

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The function, found at the first attempt.

        Raises
        ------
        MissingDependencyError, BadParameterError, AppError
            The function does not exist; see `dropflow.apps.functions.load_function`.
        """
        where = self.template.name
        if self._code is not None:
            return object_from_source(self._code, self._source, self.function_name, where)
        if self._source.strip():
            restored: Callable[..., Any] = object_from_pickle(self._source, where)
            return restored
        return import_object(self.function_name, where)

    def load_from(self, file: Path) -> bool:
        """Write the source to a file, and make the function from it: debuggers need a file for lines and breakpoints.

        Returns False, and writes nothing, if the node has no source, or its function is called in another environment.

        Raises
        ------
        BadParameterError, Exception
            See `function`.
        """
        if self._code is None or not self.environment.are_plain:
            return False
        file.write_text(self._source, encoding="utf-8")
        self._code = compile_source(self._source, self.template.name, str(file))
        return self.function is not None

    @cached_property
    def signature(self) -> Signature:
        """Parameters of the function. If this process cannot import it, they are not known."""
        if self.environment.are_plain or (self.environment.is_own and not self._source.strip()):
            return Signature(self.function)
        parameters = signature_of(self._source, self.function_name)
        return Signature(parameters or inspect.Signature([_ANY_NAMED]), title=self.function_name)

    def run(self, context: Context) -> None:
        """Call the function and write its return value to the outputs."""
        bound = bind(self.signature, context, self.values, self.defaults)
        if self.environment.are_plain:
            value = self.function(*bound.args, **bound.kwargs)
        else:
            from dropflow.apps.functions.function_elsewhere import FunctionCall, call_elsewhere  # noqa: PLC0415 - few functions need it

            call = FunctionCall(self._source, self.function_name, bound.args, bound.kwargs, bound.written)
            value = call_elsewhere(context, self.template, self.environment, call)
        deliver(context, value, bound)


def deliver(context: Context, value: Any, bound: Bound, *, outputs: Sequence[OutputData] | None = None) -> None:
    """Write the return value of a function to the outputs of an attempt.

    Parameters
    ----------
    context : Context
        The attempt.
    value : Any
        Return value of the function.
    bound : Bound
        The call. Outputs that the function wrote itself are left as they are.
    outputs : sequence of OutputData, optional
        Outputs to write to; by default all.
    """
    written = bound.written
    values = _by_port(context, value, written)
    for output in context.outputs if outputs is None else outputs:
        if is_event(context.arguments, output.port):
            continue
        source = written.get(output.port)
        if source is None:
            _put(context, output, values.get(output.port, value) if values else value)
        elif source is not output:
            _copy(source.path, output.path)
        else:
            _refuse_other_format(context, output)


def _by_port(context: Context, value: Any, written: Collection[str]) -> Mapping[str, Any] | None:
    """Return `value` if it is a dictionary with an entry for each output port that is not written, else None."""
    if not isinstance(value, dict):
        return None
    ports = {
        argument.name
        for argument in context.arguments.values()
        if argument.usage in ("OutputPort", "InputOutput", TWO_PORTS) and not is_event(context.arguments, argument.name)
    } or {output.port for output in context.outputs}
    ports -= set(written)
    return value if len(ports) > 1 and set(value) == ports else None


def _put(context: Context, output: OutputData, value: Any) -> None:
    encoding = encoding_of(context.arguments, output.port, "output_parser")
    # An empty path would mean the directory itself, with the files of all drops.
    if encoding == "path" and value and isinstance(value, str | Path) and (context.directory / value).exists():
        value = str(context.directory / value)  # base of the relative paths of a session
    output.put(value, encoding)


def _refuse_other_format(context: Context, output: OutputData) -> None:
    """Raise if the function wrote a content of another format than that of the port."""
    encoding = encoding_of(context.arguments, output.port, "output_parser")
    if encoding is not None and encoding in FORMATS:
        try:
            refuse_other_format(encoding, output.path)
        except CannotHoldError as problem:
            raise AppError(
                f"the function wrote another format than '{encoding}': {problem}",
                where=f"output '{output.port}'",
                hint="write this format, or correct the encoding of the output port",
            ) from None


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.exists():
        shutil.copyfile(source, target)


# Objects in a graph: constructors and member functions.
#
# A constructor (``func_name`` ends with ``__init__`` or names a class) puts the new object on its port ``self``. A bare
# ``__init__``, or the bare name of a class, means the class that ``base_name`` names. A member function takes the
# object from its port ``self`` and is called on it. The object, as the call left it, goes to the output port ``self``
# if there is one; the return value goes to the other outputs. If the class of an object cannot be imported it is
# pickled by value, so classes defined in ``func_code`` work.


class PythonMemberFunction(PyFuncApp):
    """Calls a constructor, or a member function of an object."""

    environment_fields: ClassVar[tuple[str, ...]] = ()
    component = Component(
        name="PythonMemberFunction",
        kind=Kind.APP,
        category="PythonMemberFunction",
        dropclass="dlg.apps.pyfunc.PyMemberApp",
        aliases=("dlg.apps.simple.PyMemberApp",),
        description="Calls a constructor, which gives its object to the port 'self', or a member function of the "
        "object that comes in at that port.",
        parameters=(
            *FUNCTION_PARAMETERS,
            Parameter(
                name="base_name", parameter_type="ComponentParameter", description="Dotted name of the object's class."
            ),
        ),
        ports=(
            Port(name=SELF, usage="InputOutput", type="Object.self", encoding=_ENCODING, description="The object."),
        ),
    )

    def __init__(self, template: Template) -> None:
        super().__init__(template)
        base = str(self.parameters["base_name"]).strip()
        if base and self.function_name in ("__init__", base.rpartition(".")[2]):
            self.function_name = f"{base}.__init__"  # the constructor of the class in base_name

    def needs(self) -> tuple[str, ...]:
        """Return the class of a constructor. Members are looked up on the object at run time."""
        return super().needs() if self.function_name.endswith("__init__") else ()

    def check(self) -> None:
        """Raise if a constructor certainly does not exist. Members are looked up on the object at run time."""
        if self.function_name.endswith("__init__"):
            super().check()

    def check_ports(self, inputs: Collection[str], outputs: Collection[str], *, is_certain: bool) -> None:
        """Raise if an encoding does not exist. Arguments of a member are known only at run time."""
        self.refuse_encodings(inputs, outputs)

    def run(self, context: Context) -> None:
        """Call the function, and write the return value and the object to their outputs."""
        objects = [data for data in context.inputs if data.port == SELF and data.state is not DropState.SKIPPED]
        if len(objects) > 1:
            names = ", ".join(data.name or data.oid for data in objects[:_SHOWN_INPUTS])
            raise AppError(
                f"{len(objects)} objects come in at port 'self', which takes one: {names}",
                hint="connect one object, or collect the objects at a port named after an argument of the function",
            )
        data = objects[0] if objects else context.input(SELF)
        if data is None:
            function = self.function
            bound = bind(self.signature, context, self.values, self.defaults)
            _deliver(context, function(*bound.args, **bound.kwargs), None, bound)
            return
        if not data.ok:
            raise AppError(f"the object at port 'self' is missing: '{data.name}' {describe_state(data.state)}")
        target = data.value()
        method = self._method(target)
        bound = bind(Signature(method), context, self.values, self.defaults, without=(SELF,))
        _deliver(context, method(*bound.args, **bound.kwargs), target, bound)

    def _method(self, target: Any) -> Callable[..., Any]:
        """Return the member of `target` by its name, so that subclasses and code in the graph work."""
        name = self.function_name.rpartition(".")[2]
        method = getattr(target, name, None)
        if not callable(method):
            members = ", ".join(member for member in dir(target) if not member.startswith("_"))
            raise AppError(
                f"the object at port 'self' is a {type(target).__name__} and has no member function '{name}'",
                hint=f"it has {members[:300] or 'none'}",
            )
        bound: Callable[..., Any] = method
        return bound


def _deliver(context: Context, value: Any, target: Any, bound: Bound) -> None:
    """Write the object to outputs at ``self``, and `value` to the others."""
    others = [output for output in context.outputs if output.port != SELF]
    for output in context.outputs:
        if output.port == SELF:
            output.put(value if target is None else target, _ENCODING)
    deliver(context, value, bound, outputs=others)


# Small functions for Python function nodes; graphs know them as ``dlg.apps.simple_functions.*`` too.
#
# Their names are DALiuGE's, hence the camelCase.


def readLines(filename: str) -> list[str]:  # noqa: N802 - the name that graphs use
    """Return the lines of the text file `filename`, without their ends."""
    return Path(filename).read_text(encoding="utf-8").splitlines()


def createRange(end: int = 10, start: int = 0, step: int = 1) -> list[int]:  # noqa: N802 - see readLines
    """Return the whole numbers from `start` up to, but without, `end`."""
    return list(range(start, end, step))


def createMultiOut(v1: Any = 1, v2: Any = 2) -> dict[str, Any]:  # noqa: N802 - see readLines
    """`v1` for the output port ``out1``, `v2` for ``out2``."""
    return {"out1": v1, "out2": v2}


def getMax(values: Iterable[Any]) -> Any:  # noqa: N802 - see readLines
    """Return the largest of `values`."""
    return max(values)


def string2json(string: str | None = None) -> Any:
    """Return the value of the JSON text `string`; None for no text."""
    return json.loads(string) if string and string.strip() else None
