"""The decorator that makes a Python function an application of graphs."""

import ast
import base64
import builtins
import contextvars
import dis
import functools
import inspect
import linecache
import math
import pickle
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeGuard, TypeVar, overload

from dropflow.apps.parameters import COMMON_APP, ENVIRONMENT_PARAMETERS
from dropflow.builder.draft import DraftNode, type_name
from dropflow.builder.handles import (
    ANY,
    CarriedValue,
    Data,
    Formula,
    GroupedData,
    annotations_of,
    fits,
    format_path,
    list_of,
    port_type,
    shown,
)
from dropflow.errors import UsageError
from dropflow.failure import summary_of
from dropflow.formatting import did_you_mean
from dropflow.graph.components import ENVIRONMENT_PREFIX, fold, is_empty

if TYPE_CHECKING:
    from dropflow.builder.graph import Graph

_LITERALS = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (list, tuple, set, frozenset)
_BY_HAND = "or give @app(imported=True), if its module is installed where the graph runs"
_DEFINING = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.Try, ast.If)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
OPEN_GRAPHS: contextvars.ContextVar["tuple[Graph, ...]"] = contextvars.ContextVar("open graphs", default=())
"""The graphs of the ``with`` statements around the present call, outermost first."""
_SETTINGS = {parameter.name: parameter for parameter in (*COMMON_APP, *ENVIRONMENT_PARAMETERS)}
_LARGEST_INTEGER = 2**63
"""Magnitude from which an integer is not stored as a field: it must fit into 64 bits with a sign."""
NO_ARGUMENTS = frozenset(
    fold(name) for name in ("func_name", "Function Name", "func_code", "func", "func_defaults", "self")
)
"""Names that a function node has for itself, so that an argument cannot have them."""
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_GROUP = "The data of the group."

# The code of a function as a module of its own: what the field ``func_code`` of a node has.
#
# The module has the function without its decorators, and what the function uses of the module around it: imports, other
# functions of the same file, and constants that can be written as literals. Anything else is an error when the function
# is used in a graph, and not when the graph runs on another machine.


def import_path(function: Callable[..., Any]) -> str:
    """Return the dotted name under which a function can be imported.

    Raises
    ------
    UsageError
        It has none: it is defined in a script, a notebook or another function.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if isinstance(function, types.BuiltinFunctionType) and module is None:
        module = type(function.__self__).__name__
    if not name or module in (None, "__main__") or "<" in name:
        raise UsageError(
            f"{_title(function)} cannot be imported by its name",
            hint="put it into a module of its own, or leave out imported=True so that its code is in the graph",
        )
    return name if module == "builtins" else f"{module}.{name}"


class _WrittenModule(NamedTuple):
    """The module that is written: lines and functions by the names that they define, and what names stand for."""

    lines: dict[str, str]
    functions: dict[str, str]
    values: dict[str, Any]
    copies: list[types.FunctionType]
    """Functions of other modules that are the same as one of `functions`."""


def code_of(*wanted: types.FunctionType) -> str:
    """Return the source of a module that defines functions.

    Raises
    ------
    UsageError
        The source of one is not known, or it uses something that cannot be written into the module.
    """
    module = _WrittenModule({}, {}, {}, [])
    for function in wanted:
        _add(function, module, as_name=function.__name__)
    head = "".join(f"{line}\n" for line in sorted(module.lines.values(), key=_order))
    return "\n\n".join(part for part in (head, *module.functions.values()) if part)


def code_in(path: Path, name: str) -> str:
    """Return the code of the function `name` of a file as `code_of` gives it; empty if the file does not define it.

    Of the file, only that runs what the function needs: imports, other functions, and constants. So a graph that the
    file runs at its end is not run.

    Raises
    ------
    UsageError
        The file cannot be read, is not Python, or the function cannot be written into a graph.
    """
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (OSError, SyntaxError, ValueError) as error:
        raise UsageError(f"the functions of {path} cannot be read: {summary_of(error)}", where=str(path)) from error
    binding: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            statement.decorator_list = []
        if isinstance(statement, _DEFINING):
            names = (
                instruction.argval
                for instruction in dis.get_instructions(_compiled([statement], path))
                if "STORE_" in instruction.opname
            )
            for bound in names:
                binding.setdefault(bound, []).append(statement)
    if not any(isinstance(node, ast.FunctionDef) for node in binding.get(name, ())):
        return ""
    needed: list[ast.stmt] = [node for node in binding.get("annotations", ()) if isinstance(node, ast.ImportFrom)]
    waiting = [name]
    for wanted in waiting:
        for statement in binding.pop(wanted, ()):
            needed.append(statement)
            waiting += _globals_of(_compiled([statement], path))
    space: dict[str, Any] = {"__name__": "__dropflow_code__", "__file__": str(path)}
    sys.path.insert(0, str(path.parent))  # as Python does for a script
    try:
        linecache.checkcache(str(path))
        exec(_compiled([node for node in tree.body if node in needed], path), space)  # noqa: S102 - the user's own code
    except Exception as error:
        raise UsageError(f"the code of {path} that {name} uses failed: {summary_of(error)}", where=str(path)) from error
    finally:
        sys.path.remove(str(path.parent))
    return code_of(space[name])


def _compiled(statements: list[ast.stmt], path: Path) -> types.CodeType:
    return compile(ast.Module(statements, []), str(path), "exec", dont_inherit=True)


def _add(function: types.FunctionType, module: _WrittenModule, *, as_name: str) -> None:
    title = _title(function)
    if function.__name__ == "<lambda>":
        raise UsageError(f"{title} is a lambda, which has no name in a graph", hint="write it as a def")
    if function.__code__.co_freevars:
        names = ", ".join(function.__code__.co_freevars)
        raise UsageError(
            f"{title} uses {names} of the function around it, which are not in the graph",
            hint="give them as arguments, or define the function at the top of its file",
        )
    tree = _parsed(function, title)
    tree.decorator_list = []
    module.functions[as_name] = ""  # known from here on, as functions may call each other
    module.values[as_name] = function
    _add_used(function, tree, title, module)
    # Behind the functions that it uses, which may be defaults of its arguments.
    del module.functions[as_name]
    module.functions[as_name] = _plain_text(function, tree)


def _add_used(function: types.FunctionType, tree: ast.FunctionDef, title: str, module: _WrittenModule) -> None:
    """Add what a function uses to its module."""
    used = dict.fromkeys(_globals_of(function.__code__))
    evaluated = [*tree.args.defaults, *(default for default in tree.args.kw_defaults if default is not None)]
    used |= dict.fromkeys(name.id for each in evaluated for name in ast.walk(each) if isinstance(name, ast.Name))
    for name in used:
        if name in function.__globals__:
            value = function.__globals__[name]
            _add_global(name, value, title, module)
            if isinstance(value, types.ModuleType):
                module.lines.update((below, f"import {below}") for below in _modules_below(name, value, tree))
        elif hasattr(builtins, name):
            _refuse_other(name, getattr(builtins, name), title, module)
        else:
            raise UsageError(f"{title} uses {name!r}, which is not defined", hint="define or import it")
    if any(not hasattr(builtins, name) for name in _annotated(tree)):
        module.lines["__future__"] = "from __future__ import annotations"


def _refuse_other(name: str, value: Any, title: str, module: _WrittenModule) -> None:
    """Raise if a name has another value in the module of another function: here it can have only one."""
    known = module.values.setdefault(name, value)
    if known is value or any(copy is value for copy in module.copies):
        return
    if _is_own(known) and _is_own(value) and not value.__closure__:
        tree = _parsed(value, title)
        if _plain_text(known, _parsed(known, title)) == _plain_text(value, tree):
            module.copies.append(value)
            _add_used(value, tree, title, module)  # refused if it is not the same for both
            return
    is_same = _is_literal(known) and _is_literal(value) and repr(known) == repr(value)
    if not is_same and not name.startswith("__"):
        raise UsageError(
            f"{title} uses another {name!r} than a function of another module that goes into the graph with it",
            hint=f"rename one of the two, {_BY_HAND}",
        )


def _add_global(name: str, value: Any, title: str, module: _WrittenModule) -> None:
    """Add a global of a function to its module."""
    value = getattr(value, "__wrapped__", value) if type(value).__name__ == "AppFunction" else value
    _refuse_other(name, value, title, module)
    if name in module.lines or name in module.functions:
        return
    if isinstance(value, types.ModuleType):
        module.lines[name] = f"import {value.__name__}" + ("" if value.__name__ == name else f" as {name}")
    elif _is_own(value):
        if value.__name__ != name:
            raise UsageError(f"{title} uses {value.__name__} under the name {name!r}", hint="call it by its own name")
        _add(value, module, as_name=name)
    elif _is_literal(value):
        module.lines[name] = f"{name} = {value!r}"
    elif _is_installed(value):
        own = value.__name__
        module.lines[name] = f"from {value.__module__} import {own}" + ("" if own == name else f" as {name}")
    else:
        kind = type(value).__name__
        raise UsageError(
            f"{title} uses the global {name!r}, a {kind} that cannot be written into the graph",
            hint=f"give it as an argument, define it inside the function, {_BY_HAND}",
        )


def _modules_below(name: str, module: types.ModuleType, tree: ast.AST) -> Iterator[str]:
    """Yield the full names of modules that the code reads as attributes of `module`, which it calls `name`."""
    for node in ast.walk(tree):
        first, *rest = ast.unparse(node).split(".") if isinstance(node, ast.Attribute) else ("",)
        value: Any = module if first == name else None
        for part in rest:
            above = getattr(value, "__name__", "") if isinstance(value, types.ModuleType) else ""
            value = getattr(value, part, None) if above else None
            if getattr(value, "__name__", "") != f"{above}.{part}":  # os.path has another name: os makes it
                value = None
        if rest and isinstance(value, types.ModuleType):
            yield value.__name__


def _is_installed(value: Any) -> bool:
    """Return whether a function or class is an attribute of an installed module, not of the user's own file."""
    name, module = getattr(value, "__qualname__", ""), inspect.getmodule(value)
    if not name or "." in name or module is None or getattr(module, name, None) is not value:
        return False
    path = getattr(module, "__file__", None)
    return path is None or any(part in path for part in ("site-packages", "dist-packages", "/lib/python"))


def _is_own(value: Any) -> TypeGuard[types.FunctionType]:
    """Return whether a value is a function of the user's own files."""
    return isinstance(value, types.FunctionType) and not _is_installed(value)


def _is_literal(value: Any) -> bool:
    if isinstance(value, dict):
        return type(value) is dict and all(_is_literal(member) for pair in value.items() for member in pair)
    if isinstance(value, _CONTAINERS):
        return (
            type(value) in (list, tuple, set) and bool(value or type(value) is not set) and all(map(_is_literal, value))
        )
    if isinstance(value, float | complex):
        return type(value) in _LITERALS and repr(value).lstrip("-").strip("()")[:1].isdigit()
    return type(value) in _LITERALS


def _globals_of(code: types.CodeType) -> Iterator[str]:
    """Yield the names of globals that the code of a function, and of functions in it, reads."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from (name for name in _globals_of(constant) if not name.startswith("__"))


def _parsed(function: types.FunctionType, title: str) -> ast.FunctionDef:
    try:
        definition = ast.parse(_source(function)).body[0]
    except (OSError, TypeError, SyntaxError, IndexError) as error:
        raise UsageError(
            f"the source of {title} is not known",
            hint=f"define it in a file or a notebook, {_BY_HAND}",
        ) from error
    if not isinstance(definition, ast.FunctionDef):
        raise UsageError(f"{title} is not an ordinary function", hint="define it with def")
    return definition


def _source(function: types.FunctionType) -> str:
    """Return the source of a function without its indentation in the file. Texts over several lines keep theirs."""
    source = inspect.getsource(function)
    indentation = source[: len(source) - len(source.lstrip())]
    if not indentation:
        return source
    lines = source.split("\n")
    of_texts = {
        line
        for node in ast.walk(ast.parse(f"if True:\n{source}"))
        if isinstance(node, ast.Constant | ast.JoinedStr)
        for line in range(node.lineno - 1, (node.end_lineno or node.lineno) - 1)
    }
    return "\n".join(
        line if number in of_texts else line.removeprefix(indentation) for number, line in enumerate(lines)
    )


def _annotated(tree: ast.FunctionDef) -> Iterator[str]:
    """Yield the names in the annotations of a function."""
    arguments = [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs, tree.args.vararg, tree.args.kwarg]
    for annotation in (tree.returns, *(argument.annotation for argument in arguments if argument is not None)):
        if annotation is not None:
            yield from (node.id for node in ast.walk(annotation) if isinstance(node, ast.Name))


def _plain_text(function: types.FunctionType, tree: ast.FunctionDef) -> str:
    """Return the text of a function as it was written, comments included, from its ``def``."""
    lines = _source(function).split("\n")
    return "\n".join(lines[tree.lineno - 1 : tree.end_lineno]) + "\n"


def _order(line: str) -> tuple[bool, bool, str]:
    return not line.startswith("from __future__"), not line.startswith(("import ", "from ")), line


def _title(function: Callable[..., Any]) -> str:
    return f"the function {getattr(function, '__qualname__', None) or repr(function)!s}"


class AppFunction(Generic[Arguments, Result]):
    """A function that is an application of graphs; `app` makes it.

    Inside ``with Graph(...)``, or with data of a graph as an argument, a call adds a node to the graph and returns its
    `Data`. Any other call is an ordinary call of the function.
    """

    def __init__(
        self,
        function: Callable[Arguments, Result],
        *,
        name: str = "",
        outputs: tuple[str, ...] = (),
        imported: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.outputs = _checked_outputs(outputs)
        self.settings = _checked_settings(settings or {})
        self.is_imported = imported or not isinstance(function, types.FunctionType)
        given = getattr(function, "__name__", "") or type(function).__name__
        self.title = name or given.strip("_").replace("_", " ").capitalize() or given
        try:
            self.signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self.signature = None  # many functions written in C
        self.annotations = annotations_of(function)
        parameters = {} if self.signature is None else self.signature.parameters
        marks = {name: format_path(self.annotations.get(name)) for name in parameters}
        self.paths = {name: mark.encoding for name, mark in marks.items() if mark is not None and not mark.is_output}
        """Encodings of arguments that are paths of inputs."""
        self.written = {port: "path" for port in self.outputs if port in parameters}
        self.written |= {name: mark.encoding for name, mark in marks.items() if mark is not None and mark.is_output}
        """Encodings of outputs that the function writes itself, to paths that it gets as arguments of these names."""
        if self.signature is not None and self.written:
            given_by_graph = [parameter for parameter in parameters.values() if parameter.name not in self.written]
            self.signature = self.signature.replace(parameters=given_by_graph)
        if self.written and not self.outputs and self.annotations.get("return") not in (None, type(None)):
            raise UsageError(
                f"{self.title} writes to {', '.join(self.written)}, and its return value goes nowhere",
                hint='name an output for it, as in @app(outputs=("table",)), or return None',
            )

    def options(
        self, *, name: str = "", outputs: tuple[str, ...] | None = None, **settings: Any
    ) -> "AppFunction[Arguments, Result]":
        """Return this application with other options; see `app`."""
        return AppFunction(
            self.function,
            name=name or self.title,
            outputs=self.outputs if outputs is None else outputs,
            imported=self.is_imported,
            settings={**self.settings, **settings},
        )

    @property
    def code(self) -> str:
        """The source for the field ``func_code``; empty if the function is imported.

        Raises
        ------
        UsageError
            See `code_of`.
        """
        return code_of(self.function) if isinstance(self.function, types.FunctionType) and not self.is_imported else ""

    @property
    def path(self) -> str:
        """The value of the field ``func_name``.

        Raises
        ------
        UsageError
            See `import_path`.
        """
        return import_path(self.function) if self.is_imported else self.function.__name__

    @property
    def returned(self) -> Any:
        """The annotation of what it returns."""
        own = self.function if isinstance(self.function, type) else ANY
        return self.annotations.get("return", own)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, or add it to a graph."""
        graph = _graph_of((*args, *kwargs.values()))
        return self.function(*args, **kwargs) if graph is None else graph.call(self, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<app {self.title!r}>"


@overload
def app(function: Callable[Arguments, Result], /) -> AppFunction[Arguments, Result]: ...


@overload
def app(
    *, name: str = "", outputs: tuple[str, ...] = (), imported: bool = False, **settings: Any
) -> Callable[[Callable[Arguments, Result]], AppFunction[Arguments, Result]]: ...


def app(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    outputs: tuple[str, ...] = (),
    imported: bool = False,
    **settings: Any,
) -> Any:
    """Make a function an application of graphs. Its parameters are the input ports and arguments of the node.

    Parameters
    ----------
    function : callable
        The function. The graph has its code, with the imports, functions and constants of its file that it uses.
    name : str
        Name of the node; by default made from that of the function.
    outputs : tuple of str
        Names of outputs. A function that has a parameter of this name, or one that is annotated as
        `dropflow.OutputPath`, writes the output itself: the parameter is the path of a file or directory to make, and
        calls in graphs leave it out. Of several other outputs, the function returns a dictionary with exactly these
        keys. A call in a graph returns the data of the outputs: a tuple if there are several.
    imported : bool
        Have the graph name the function, and not contain its code: its module must be installed where the graph runs.
    **settings
        Parameters of all applications (the palettes list them), such as ``n_tries=3`` or ``num_cpus=2``.

    Returns
    -------
    AppFunction
        The application; with options only, a decorator that makes one.

    Raises
    ------
    UsageError
        There is no such setting, or an output has no valid name.

    Examples
    --------
    >>> @app(n_tries=2)
    ... def double(x: int) -> int:
    ...     return 2 * x
    >>> double(4)
    8
    """
    if function is not None:
        return AppFunction(function)
    return lambda given: AppFunction(given, name=name, outputs=outputs, imported=imported, settings=settings)


def as_app(function: Callable[..., Any]) -> AppFunction[..., Any]:
    """Return a function as an application; one that is decorated is returned as it is.

    Raises
    ------
    UsageError
        It cannot be called.
    """
    if isinstance(function, AppFunction):
        return function
    if not callable(function):
        raise UsageError(f"{function!r:.60} is not a function", hint="give a function, and its arguments after it")
    return AppFunction(function)


def _graph_of(values: tuple[Any, ...]) -> "Graph | None":
    """Return the graph that is open, or else that of the data among the arguments of a call."""
    opened = OPEN_GRAPHS.get()
    if opened:
        return opened[-1]
    for value in values:
        for element in value if isinstance(value, list | tuple) else (value,):
            if isinstance(element, Data | GroupedData):
                return element.graph
            if isinstance(element, CarriedValue):
                return element.first.graph
    if any(isinstance(value, Formula) for value in values):
        raise UsageError("a parameter of a graph was given to a function outside a graph", hint="use with Graph(...)")
    return None


def _checked_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    for name in settings:
        if name not in _SETTINGS:
            raise UsageError(
                f"applications have no setting {name!r}",
                hint=did_you_mean(name, _SETTINGS) or f"they have {', '.join(sorted(_SETTINGS))}",
            )
    return dict(settings)


def _checked_outputs(outputs: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(outputs)
    wrong = [name for name in names if not str(name).isidentifier()] or isinstance(outputs, str)
    if wrong or len(set(names)) < len(names):
        raise UsageError(f"the outputs {names!r} are not different names", hint='give a tuple such as ("low", "high")')
    return names


# The arguments of a call, as ports and fields of the node that it adds.


def connect(
    graph: "Graph",
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
    node.reads |= function.paths
    parameters = {} if function.signature is None else function.signature.parameters
    for name, value in bound.items():
        if fold(name) in NO_ARGUMENTS:
            raise UsageError(
                f"an argument of a graph cannot be called {name!r}", where=_at(graph, node), hint="rename it"
            )
        parameter = parameters.get(name)
        wanted = function.annotations.get(name, ANY)
        if parameter is not None and parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            for element in value:
                _connect_value(graph, node, name, element, wanted=wanted)
            continue
        _connect_value(graph, node, name, value, wanted=wanted, default=ANY if parameter is None else parameter.default)
    _refuse_late_group(graph, node, list(bound), list(parameters.values()))


def connect_inputs(graph: "Graph", node: DraftNode, inputs: Mapping[str, Any]) -> None:
    """Connect values to ports and fields of their names, for applications that are not functions."""
    for name, value in inputs.items():
        _connect_value(graph, node, name, value)


def _bound(
    graph: "Graph",
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
    arguments: dict[str, Any] = {}
    for name, parameter in function.signature.parameters.items():
        if name in bound.arguments:
            value = bound.arguments[name]
            arguments |= value if parameter.kind is inspect.Parameter.VAR_KEYWORD else {name: value}
        elif parameter.kind not in _VARIABLE and _is_field(parameter.default):
            arguments[name] = parameter.default  # shown in the editor, where it can be changed
    return arguments


def _connect_value(
    graph: "Graph", node: DraftNode, name: str, value: Any, *, wanted: Any = ANY, default: Any = ANY
) -> None:
    if isinstance(value, CarriedValue) and value.loop not in graph.drawing.path(node):
        value = graph.wiring.as_data(value)  # outside the loop, the list of all iterations
    if isinstance(value, list | tuple) and any(isinstance(element, Data | CarriedValue) for element in value):
        _connect_several(graph, node, name, [graph.wiring.as_data(element) for element in value], wanted)
    elif isinstance(value, Data):
        graph.wiring.refuse_unreadable(value, node)
        _refuse_other_type(graph, node, name, graph.wiring.annotation_at(value, node), wanted)
        graph.wiring.link(value, node, name, type_=port_type(wanted))
    elif isinstance(value, CarriedValue):
        _refuse_other_type(graph, node, name, value.first.annotation, wanted)
        graph.wiring.link(
            value.first, node, name, type_=port_type(wanted), loop_aware=_enters_one_loop(graph, value.first, node)
        )
        node.set("group_start", value=True)
        value.add_reader(node, name)
    elif isinstance(value, GroupedData):
        _refuse_other_type(graph, node, name, value.annotation, wanted)
        node.set("group_start", value=True)
        node.field(name, type="Object", usage="InputPort", description=_GROUP)
        graph.drawing.undo.append(functools.partial(setattr, value, "is_used", value.is_used))
        value.is_used = True
    elif isinstance(value, Formula):
        node.set(name, value.text, value.type, kind="ApplicationArgument")
    else:
        _connect_literal(graph, node, name, value, wanted=wanted, default=default)


def _enters_one_loop(graph: "Graph", data: Data, node: DraftNode) -> bool:
    """Return whether an edge enters one loop only. If it enters several, loop-aware would mean the first of all."""
    around = graph.drawing.path(data.node)
    return sum(construct.category == "Loop" and construct not in around for construct in graph.drawing.path(node)) == 1


def _connect_several(graph: "Graph", node: DraftNode, name: str, values: Any, wanted: Any) -> None:
    if len(values) < 2 or not all(isinstance(value, Data) for value in values):
        raise UsageError(
            f"the argument {name!r} is a list of {len(values)}, expected several data of the graph and nothing else",
            where=_at(graph, node),
            hint="give a single value without a list; make data of other values with graph.value(...)",
        )
    if len({value.node.id for value in values}) < len(values):
        raise UsageError(f"the argument {name!r} has the same data twice", where=_at(graph, node), hint="give it once")
    for value in values:
        _refuse_other_type(graph, node, name, list_of(value.annotation), wanted)
        graph.wiring.link(value, node, name)


def _connect_literal(graph: "Graph", node: DraftNode, name: str, value: Any, *, wanted: Any, default: Any) -> None:
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
        graph.wiring.link(graph.wiring.value_in(node.inside, value, f"{node.name} {name}"), node, name)


def _is_field(value: Any) -> bool:
    """Return whether a value can be written into a field, and is then read as it was."""
    if type(value) is list:
        return bool(value) and all(element is None or _is_field(element) for element in value)
    if type(value) is dict:
        return bool(value) and all(
            type(key) is str and (element is None or _is_field(element)) for key, element in value.items()
        )
    if type(value) is str:
        return not value.startswith(ENVIRONMENT_PREFIX) and value == value.strip()
    return (
        type(value) is bool
        or (type(value) is int and abs(value) < _LARGEST_INTEGER)
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
                hint="give the data that it is made from, and make it in the function",
            ) from error
    return base64.b64encode(body).decode()


def _refuse_other_type(graph: "Graph", node: DraftNode, name: str, given: Any, wanted: Any) -> None:
    if given is ANY or wanted is ANY or fits(given, wanted):
        return
    raise UsageError(
        f"the argument {name!r} is {shown(given)}, expected {shown(wanted)}",
        where=_at(graph, node),
        hint="convert it in a function between them, or correct the annotations",
    )


def _refuse_hidden(graph: "Graph", node: DraftNode, name: str, value: Any) -> None:
    """Raise if data of the graph are inside a value, where they would not become an edge."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    if any(
        isinstance(element, Data | CarriedValue | GroupedData | Formula | dict) and _is_handle(element)
        for element in inner
    ):
        raise UsageError(
            f"the argument {name!r} is a {type(value).__name__} with data or parameters of the graph in it",
            where=_at(graph, node),
            hint="give each as an argument of its own, or data as a list of nothing else",
        )


def _is_handle(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_is_handle, value.values()))
    return isinstance(value, Data | CarriedValue | GroupedData | Formula)


def _refuse_late_group(graph: "Graph", node: DraftNode, given: list[str], parameters: list[inspect.Parameter]) -> None:
    """Raise if the data of a group are not for the first argument without another value: their port has no name."""
    grouped = [name for name in given if node.fields.get(name) is not None and node.fields[name].description == _GROUP]
    if not grouped:
        return
    lacking = [
        parameter.name
        for parameter in parameters
        if parameter.kind not in _VARIABLE and parameter.name not in set(given) - set(grouped)
    ]
    if len(grouped) > 1 or (lacking and lacking[0] != grouped[0]):
        raise UsageError(
            f"the data of a group are given for {grouped[-1]!r}",
            where=_at(graph, node),
            hint=f"give them once, for the first argument: {lacking[0]!r}",
        )
    del node.fields[grouped[0]]  # the translator makes the edge, to a port without a name


def _at(graph: "Graph", node: DraftNode) -> str:
    return f"{node.name} in graph {graph.name}"
