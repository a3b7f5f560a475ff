"""Python functions in another process: with variables, modules, a virtual environment, or in a container.

Arguments and value go through pickles in the private directory of the attempt, so both sides need the packages of
their types. The other side needs Python 3.8 or later, and nothing of dropflow.
"""

import os
import pickle
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dropflow.apps.app_interface import Context, OutputData
from dropflow.apps.container import Container, ContainerFiller, Program
from dropflow.apps.functions.load_function import name_parts
from dropflow.apps.runtime_environment import RuntimeEnvironment
from dropflow.errors import AppError
from dropflow.graph.templates import Template

_PROTOCOL = 4
"""Protocol of pickles that Python 3.8 can read."""
_NOT_FOUND_STATUS = 127
"""Exit status with which shells and container engines report that a command was not found."""
_CALL = """\
import os, pickle, sys, traceback

folder = sys.argv[1]


def answer(*parts):
    with open(os.path.join(folder, "answer.part"), "wb") as stream:
        pickle.dump(parts, stream, 4)
    os.rename(os.path.join(folder, "answer.part"), os.path.join(folder, "answer"))


version = ".".join(map(str, sys.version_info[:3]))
try:
    if sys.version_info < (3, 8):
        answer("old", version)
        sys.exit(0)
    with open(os.path.join(folder, "call"), "rb") as stream:
        source, parts = pickle.load(stream)
        if source:
            space = {"__name__": "__dropflow__"}
            exec(compile(source, "<func_code>", "exec"), space)
            values = space.values()
            made = [value for value in values if callable(value) and getattr(value, "__module__", "") == "__dropflow__"]
            first = next((place for place, part in enumerate(parts) if part in space), 0)
            function, module = space[parts[first]] if parts[0] else made[-1], ""
        else:
            import importlib

            first, module = 0, parts[0]
            function = importlib.import_module(module)
        for part in parts[first + 1 :]:
            module += "." + part
            if not source and not hasattr(function, part):
                importlib.import_module(module)
            function = getattr(function, part)
        args, kwargs = pickle.load(stream)
    answer("value", function(*args, **kwargs))
except Exception as error:
    traceback.print_exc()
    answer("error", type(error).__name__, str(error), version)
"""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a function.

    Attributes
    ----------
    source : str
        Source of a module that defines the function; empty if the other process imports it.
    name : str
        Name of the function, dotted if it is imported.
    written : mapping of str to OutputData
        Outputs whose path is an argument, by port.
    """

    source: str
    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    written: Mapping[str, OutputData]

    @property
    def title(self) -> str:
        """Name of the function in messages."""
        return self.name or "the function"


def call_elsewhere(context: Context, template: Template, environment: RuntimeEnvironment, call: FunctionCall) -> Any:
    """Call a function in another process, and return its value.

    Raises
    ------
    AppError
        The function raised an exception, an argument or the value cannot be pickled, or there is no Python that can
        run it.
    """
    folder = Path(context.scratch())
    values = environment.values()
    hidden = tuple(environment.secrets(values).values())
    script = folder / "call.py"
    script.write_text(_CALL, encoding="utf-8")
    if environment.run_in:
        container = Container(template, {"image": environment.run_in})
        filling = ContainerFiller(context)
        for data in context.inputs:
            if data.ok and not data.in_memory:
                filling.path_of(data)
        moved = {str(output.path): str(filling.path_of(output)) for output in call.written.values()}
        args = tuple(moved.get(value, value) if isinstance(value, str) else value for value in call.args)
        kwargs = {
            key: moved.get(value, value) if isinstance(value, str) else value for key, value in call.kwargs.items()
        }
        _write_call(folder, replace(call, args=args, kwargs=kwargs))
        context.log(f"{call.title} in {environment.run_in}")
        program = Program("python3", (str(script), str(folder)))
        status, lack = container.run(context, filling, program, values, hidden=environment.secrets(values))
        where = f"the image {environment.run_in}"
        filling.collect()
    else:
        _write_call(folder, call)
        python = sys.executable if environment.is_own else "python3"
        if environment.is_own:
            values = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **values}
        words = shlex.join([python, str(script), str(folder)])
        status, lack = context.command(f"{environment.prelude}exec {words}", values, hidden=hidden), ""
        where = environment.virtual or f"the modules {' '.join(environment.modules)}".removesuffix("the modules ")
    try:
        return _value_in(folder, call.title, where or "dropflow", status, lack)
    except AppError as error:
        for text in hidden:
            error.text = error.text.replace(text, "***")
        raise


def _write_call(folder: Path, call: FunctionCall) -> None:
    try:
        arguments = pickle.dumps((call.args, dict(call.kwargs)), _PROTOCOL)
    except Exception as error:
        raise AppError(
            f"an argument of {call.title} cannot be pickled: {error}",
            hint="functions in another environment get pickled values; give large data by path",
        ) from error
    _, parts = name_parts(call.name)
    (folder / "call").write_bytes(pickle.dumps((call.source, parts), _PROTOCOL) + arguments)


def _value_in(folder: Path, name: str, where: str, status: int, lack: str) -> Any:
    """Return the value in the answer of the other process.

    Raises
    ------
    AppError
        The answer is an error, or there is none.
    """
    try:
        kind, *parts = pickle.loads((folder / "answer").read_bytes())  # noqa: S301 - written by the graph's own code
    except FileNotFoundError:
        if status == _NOT_FOUND_STATUS:
            raise AppError(
                f"{where} has no Python: there is no program python3 in it",
                hint="use an image or environment with Python 3.8 or later, or make the node a command",
            ) from None
        raise AppError(
            f"{name} ended without a value: {lack or f'its process ended with status {status}'}",
            hint="set the field 'memory' of the node to what it needs" if lack else "see the drop's log",
        ) from None
    except Exception as error:
        raise AppError(
            f"the value of {name} cannot be read here: {error}",
            hint="install the package of its type here too, or have the function write a file",
        ) from error
    if kind == "old":
        raise AppError(
            f"{where} has Python {parts[0]}, and functions need 3.8 or later", hint="use one with a newer Python"
        )
    if kind == "error":
        raised, text, version = parts
        raise AppError(
            f"{raised}: {text}", hint=f"raised by {name} with Python {version} of {where}: see the drop's log"
        )
    return parts[0]
