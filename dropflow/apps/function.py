"""Python functions as applications.

`dropflow.apps.load_function` loads the function, `dropflow.apps.function_arguments` its arguments. The return value
goes, whole, to every output (as in DALiuGE: a tuple is not distributed), each with the encoding of its port. The one
exception is a dictionary whose keys are exactly the names of the node's output ports, two or more: then each port
gets its own entry.
If the function has an argument named after an output port with ``path`` encoding, the argument is a path, and the
function writes the content there itself. Outputs of type ``Event`` complete empty.
"""

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from dropflow.apps.api import App, Context, OutputData
from dropflow.apps.encodings import canonical
from dropflow.apps.function_arguments import Bound, Signature, bind, encoding_of, field_values, is_event, refuse_missing
from dropflow.apps.load_function import (
    compile_source,
    import_object,
    is_pickled,
    object_from_pickle,
    object_from_source,
    refuse_name,
    refuse_source,
)
from dropflow.apps.static_lookup import signature_of
from dropflow.engine.component import Component, Parameter
from dropflow.errors import BadParameterError
from dropflow.graph.templates import Argument, Kind, Template

__all__ = ["FUNCTION_PARAMETERS", "PyFuncApp", "deliver"]

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

    def __init__(self, template: Template) -> None:
        super().__init__(template)
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

    def check(self) -> None:
        """Raise if the function certainly does not exist. Runs and imports nothing of the graph."""
        if self._code is not None:
            refuse_source(self._source, self.function_name, self.template.name)
        elif not self._source.strip():
            refuse_name(self.function_name, self.template.name)

    def check_ports(self, inputs: Collection[str], outputs: Collection[str], *, is_certain: bool) -> None:
        """Raise if an encoding does not exist, or a required argument certainly gets no value."""
        self.refuse_encodings(inputs, outputs)
        found = signature_of(self._source, self.function_name) if is_certain and self._code is not None else None
        if found is not None:
            signature = Signature(found, title=self.function_name)
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
            It does not exist; see `dropflow.apps.load_function`.
        """
        where = self.template.name
        if self._code is not None:
            return object_from_source(self._code, self._source, self.function_name, where)
        if self._source.strip():
            found: Callable[..., Any] = object_from_pickle(self._source, where)
            return found
        return import_object(self.function_name, where)

    @cached_property
    def signature(self) -> Signature:
        """Parameters of the function."""
        return Signature(self.function)

    def run(self, context: Context) -> None:
        """Call the function and write its return value to the outputs."""
        bound = bind(self.signature, context, self.values, self.defaults)
        deliver(context, self.function(*bound.args, **bound.kwargs), bound)


def deliver(context: Context, value: Any, bound: Bound, *, outputs: Sequence[OutputData] | None = None) -> None:
    """Write what a function returned to the outputs of an attempt.

    Parameters
    ----------
    context : Context
        The attempt.
    value : Any
        Return value of the function.
    bound : Bound
        The call. Outputs that the function wrote itself are left as they are.
    outputs : sequence of OutputData, optional
        Where to write; by default all outputs.
    """
    written = bound.written
    values = _by_port(context, value)
    for output in context.outputs if outputs is None else outputs:
        if is_event(context.arguments, output.port):
            continue
        source = written.get(output.port)
        if source is None:
            _put(context, output, values.get(output.port, value) if values else value)
        elif source is not output:
            _copy(source.path, output.path)


def _by_port(context: Context, value: Any) -> Mapping[str, Any] | None:
    """Return `value` if it is a dictionary with an entry for each output port, else None."""
    if not isinstance(value, dict):
        return None
    ports = {
        argument.name
        for argument in context.arguments.values()
        if argument.usage in ("OutputPort", "InputOutput") and not is_event(context.arguments, argument.name)
    } or {output.port for output in context.outputs}
    return value if len(ports) > 1 and set(value) == ports else None


def _put(context: Context, output: OutputData, value: Any) -> None:
    encoding = encoding_of(context.arguments, output.port, "output_parser")
    if encoding == "path" and isinstance(value, str | Path) and (context.directory / value).exists():
        value = str(context.directory / value)  # base of the relative paths of a session
    output.put(value, encoding)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.exists():
        shutil.copyfile(source, target)
