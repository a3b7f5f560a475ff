"""Components from Python code of one's own: functions, classes and applications of a package or a file.

The code is imported, as it is when a graph runs it. A node of a function of a package has the dotted name of the
function; a node of a function of a file has its source, because graphs run where the file is not. Descriptions and
missing types come from docstrings (numpydoc, Google, reST). What cannot be a component is in `OwnComponents.told`.
"""

import importlib
import importlib.util
import inspect
import math
import pkgutil
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from dropflow.apps.app_interface import App
from dropflow.apps.functions.function import SELF, PyFuncApp, PythonMemberFunction
from dropflow.apps.needs import ENTRY_POINTS
from dropflow.apps.parameters import COMMON_APP, ENVIRONMENT_PARAMETERS
from dropflow.builder.draft import type_name
from dropflow.builder.functions import NO_ARGUMENTS, AppFunction, as_app
from dropflow.builder.handles import ANY, format_path, port_type
from dropflow.errors import AppError, MissingDependencyError, UsageError, optional_package
from dropflow.failure import summary_of
from dropflow.graph.components import Component, Parameter, Port, fold

_WHAT_IMPORTS_RAISE = (Exception, SystemExit)
_NOT_COMPONENTS = (BaseException, Enum)
_SKIPPED_MODULES = frozenset({"__main__", "tests", "conftest", "setup"})
_DOCUMENTED = {"int": "Integer", "integer": "Integer", "float": "Float", "str": "String", "string": "String"}
_DOCUMENTED |= {"bool": "Boolean", "boolean": "Boolean", "dict": "Json", "list": "Json", "tuple": "Json"}


class OwnComponents(msgspec.Struct, frozen=True, kw_only=True):
    """The components of a package or file by their identities, and what could not be drawn: place and reason."""

    name: str
    components: Mapping[str, Component]
    told: tuple[str, ...]


def components_of(target: str) -> OwnComponents:
    """Return the components of a package, a module or a Python file.

    A package that registers entry points of the group ``dropflow.components`` has these components. Any other has its
    public functions, classes and applications: those in ``__all__``, or otherwise the names without underscore that a
    module defines itself.

    Parameters
    ----------
    target : str
        Dotted name of a package or module, or path of a file that ends with ``.py``.

    Raises
    ------
    MissingDependencyError
        There is no such package, or the package that reads docstrings is not installed.
    AppError
        It cannot be imported.
    """
    finder = _Finder(optional_package("docstring_parser", "palettes of one's own code need", "palettes"))
    if target.endswith(".py"):
        path = Path(target)
        finder.add_module(_file_module(path), is_file=True)
        return finder.found(path.stem)
    registered = _registered(target)
    for entry in registered:
        value = _imported(entry.load, f"{entry.name} = {entry.value}")
        if isinstance(value, types.ModuleType):
            finder.add_module(value)
        else:
            finder.add(f"{entry.module}.{entry.attr}", value, is_wanted=True)
    if not registered:
        for module in _modules(target, finder.told):
            finder.add_module(module)
    return finder.found(target)


def _registered(target: str) -> list[EntryPoint]:
    """Return the entry points of a distribution or a top-level package, by name."""
    plain = fold(target)
    return sorted(
        entry
        for entry in entry_points(group=ENTRY_POINTS)
        if plain in (fold(entry.dist.name if entry.dist else ""), fold(entry.module.partition(".")[0]))
    )


def _file_module(path: Path) -> types.ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {path}", hint="give a Python file, or the dotted name of a package")
    name = f"_palette_of_{re.sub(r'[^0-9a-zA-Z]', '_', path.stem)}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:  # cannot happen for a name that ends with .py
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look there
    sys.path.insert(0, str(path.resolve().parent))
    _imported(partial(spec.loader.exec_module, module), str(path))
    return module


def _modules(target: str, told: list[str]) -> Iterator[types.ModuleType]:
    """Import and yield a module and its submodules; append to `told` the submodules that cannot be imported."""
    try:
        is_known = importlib.util.find_spec(target) is not None
    except (ModuleNotFoundError, ValueError):
        is_known = False
    if not is_known:
        raise MissingDependencyError(
            f"there is no module {target}",
            hint=f"install it in the environment that runs dropflow ({sys.prefix}), or give the path of a file",
        )
    yield from _with_submodules(_imported(lambda: importlib.import_module(target), target), target, told)


def _with_submodules(module: types.ModuleType, name: str, told: list[str]) -> Iterator[types.ModuleType]:
    yield module
    # `pkgutil.walk_packages` would also import packages that are left out, and end with one that ends the process.
    for _, part, _ in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if part in _SKIPPED_MODULES or part.startswith(("_", "test_")):
            continue
        try:
            inner = importlib.import_module(f"{name}.{part}")
        except _WHAT_IMPORTS_RAISE as problem:  # code of users runs here
            told.append(f"{name}.{part}: cannot be imported: {summary_of(problem)}")
        else:
            yield from _with_submodules(inner, f"{name}.{part}", told)


def _imported(load: Callable[[], Any], what: str) -> Any:
    try:
        return load()
    except _WHAT_IMPORTS_RAISE as problem:
        raise AppError(f"{what} cannot be imported: {summary_of(problem)}", hint="correct it, then try again") from None


class _Finder:
    """Collects components, and the reasons why something is none."""

    def __init__(self, docstrings: Any) -> None:
        self._docstrings = docstrings
        self._components: dict[str, Component] = {}
        self._seen: set[int] = set()
        self._in_file = False
        self.told: list[str] = []

    def found(self, name: str) -> OwnComponents:
        return OwnComponents(name=name, components=self._components, told=tuple(self.told))

    def add_module(self, module: types.ModuleType, *, is_file: bool = False) -> None:
        """Add the public functions and classes of a module."""
        self._in_file = is_file
        listed = getattr(module, "__all__", None)
        for name in listed if listed is not None else [var for var in vars(module) if not var.startswith("_")]:
            value = getattr(module, name, None)
            if listed is not None or _plain(value).__module__ == module.__name__:
                self.add(f"{module.__name__}.{name}", value)

    def add(self, path: str, value: Any, *, is_wanted: bool = False) -> None:
        """Add the value of dotted name `path`; note in `told` if it is neither function nor class and `is_wanted`."""
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, type) and issubclass(value, App):
            self._add_app(path, value)
        elif isinstance(value, type) and not isinstance(value, AppFunction):
            if not issubclass(value, _NOT_COMPONENTS) and not getattr(value, "_is_protocol", False):
                self._add_class(path, value)
        elif isinstance(value, AppFunction | types.FunctionType | types.BuiltinFunctionType):
            self._add_function(path, as_app(value), title=path.rpartition(".")[2], base=PyFuncApp.component)
        elif is_wanted:
            self._tell(path, value, "is neither a function nor a class")

    def _tell(self, path: str, value: Any, reason: str) -> None:
        self.told.append(f"{_place(value) or path}: {path.rpartition('.')[2]} {reason}")

    def _add_app(self, path: str, kind: type[App]) -> None:
        if self._in_file:
            self._tell(path, kind, "is an application: put it into a package that is installed where graphs run")
        elif "component" in vars(kind):
            self._components[kind.component.dropclass] = kind.component
        else:
            self._tell(path, kind, "has no description: decorate it with dropflow.component")

    def _add_class(self, path: str, kind: type) -> None:
        """Add a constructor and the methods of a class."""
        if self._in_file:
            self._tell(path, kind, "is a class: put it into a package that is installed where graphs run")
            return
        if inspect.isabstract(kind):
            self._tell(path, kind, "is abstract, so it has no objects")
            return
        self._add_member(path, "__init__", kind, kind, "OutputPort")
        for name in dir(kind):
            member = inspect.getattr_static(kind, name)
            plain = getattr(member, "__func__", member)
            if name.startswith("_") or getattr(plain, "__module__", "").split(".")[0] != path.split(".", maxsplit=1)[0]:
                continue  # inherited from a class of another package
            if isinstance(member, staticmethod | classmethod):
                title = f"{kind.__name__}.{name}"
                self._add_function(f"{path}.{name}", as_app(getattr(kind, name)), title=title, base=PyFuncApp.component)
            elif isinstance(member, types.FunctionType):
                self._add_member(path, name, member, kind, "InputOutput")

    def _add_member(self, path: str, name: str, function: Callable[..., Any], kind: type, usage: str) -> None:
        base = PythonMemberFunction.component
        port = structs.replace(base.ports[0], usage=usage, type=f"Object.{kind.__name__}")
        own = structs.replace(
            base,
            parameters=tuple(
                structs.replace(parameter, default=path) if parameter.name == "base_name" else parameter
                for parameter in base.parameters
            ),
            ports=(port,),
        )
        title = kind.__name__ if name == "__init__" else f"{kind.__name__}.{name}"
        self._add_function(f"{path}.{name}", as_app(function), title=title, base=own)

    def _add_function(self, path: str, function: AppFunction[..., Any], *, title: str, base: Component) -> None:
        refused = _why_not(function)
        if refused:
            self._tell(path, function, refused)
            return
        try:
            code = function.code if self._in_file else ""
        except UsageError as problem:
            self._tell(path, function, f"cannot be written into a graph: {problem.text}; {problem.hint}")
            return
        docs = self._docstrings.parse(inspect.getdoc(function.function) or "")
        text = " ".join(f"{docs.short_description or ''} {docs.long_description or ''}".split())
        fields, inputs = self._arguments(path, function, docs)
        own = {"func_name": function.function.__name__ if code else path, "func_code": code, **function.settings}
        known = (
            *base.parameters,
            *COMMON_APP,
            *(parameter for parameter in ENVIRONMENT_PARAMETERS if parameter.name in function.settings),
        )
        fixed = [structs.replace(argument, default=own.get(argument.name, argument.default)) for argument in known]
        self._components[path] = structs.replace(
            base,
            name=title,
            description=text or f"Calls {title}.",
            parameters=(
                *(argument for argument in fixed if argument.name not in {field.name for field in fields}),
                *fields,
            ),
            ports=(*base.ports, *inputs, *_outputs(function, docs, base, {own_field.name for own_field in fields})),
        )

    def _arguments(self, path: str, function: AppFunction[..., Any], docs: Any) -> tuple[list[Parameter], list[Port]]:
        """Return the arguments as fields, and those without a default as input ports, too."""
        documented = {name.strip().lstrip("*"): param for param in docs.params for name in param.arg_name.split(",")}
        fields, ports = [], []
        parameters = function.signature.parameters.values() if function.signature else ()
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                self._tell(path, function, f"also takes {parameter}: add fields or ports for it in EAGLE")
                continue
            if parameter.name == SELF:
                continue
            entry = documented.get(parameter.name)
            text = " ".join((entry.description or "").split()) if entry else ""
            field = _field(
                parameter, function.annotations.get(parameter.name, ANY), (entry.type_name or "") if entry else ""
            )
            if not _is_plain(parameter.default) and parameter.default is not ANY:
                self._tell(
                    path, function, f"has a default of {parameter.name} that no field can have: it is left blank"
                )
            fields.append(structs.replace(field, description=text))
            if parameter.default is ANY or parameter.name in function.paths:
                encoding = function.paths.get(parameter.name, "pickle")
                ports.append(Port(name=parameter.name, usage="InputPort", encoding=encoding, description=text))
        return fields, ports


def _why_not(function: AppFunction[..., Any]) -> str:
    """Return why a function cannot be a component; an empty text if it can."""
    if function.signature is None:
        return "has no signature that Python knows: draw its node by hand"
    if inspect.iscoroutinefunction(function.function) or inspect.isasyncgenfunction(function.function):
        return "is asynchronous, and applications are not: call it in a function with asyncio.run"
    names = [name for name in function.signature.parameters if name != SELF and fold(name) in NO_ARGUMENTS]
    return f"has an argument {names[0]!r}, which nodes of functions use themselves: rename it" if names else ""


def _field(parameter: inspect.Parameter, annotation: Any, documented: str) -> Parameter:
    """Return an argument as a field: its type is that of its annotation, its default or its docstring."""
    is_given = parameter.default is not None and _is_plain(parameter.default)  # what is plain is not ANY
    default = parameter.default if is_given else ""
    if typing.get_origin(annotation) is typing.Literal:
        options = tuple(map(str, typing.get_args(annotation)))
        return Parameter(
            name=parameter.name, type="Select", default=default if is_given else options[0], options=options
        )
    kind = "Object" if format_path(annotation) else _type_of(annotation)
    if kind == "Object" and is_given:
        kind = type_name(default)
    if kind == "Object" and annotation is ANY:
        kind = _DOCUMENTED.get(documented.partition(",")[0].strip().lower(), kind)
    return Parameter(name=parameter.name, type=kind, default=default)


def _type_of(annotation: Any) -> str:
    """Return EAGLE's type for an annotation; ``int | None`` is that of int."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        alternatives = [argument for argument in typing.get_args(annotation) if argument is not type(None)]
        return _type_of(alternatives[0]) if len(alternatives) == 1 else "Object"
    kind = typing.get_origin(annotation) or annotation
    return "Json" if kind in (list, dict, tuple) else port_type(kind)


def _is_plain(value: Any) -> bool:
    """Return whether a field can have this value: numbers, text, and lists and mappings of them."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(type(name) is str and _is_plain(member) for name, member in value.items())
    return value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))


def _outputs(function: AppFunction[..., Any], docs: Any, base: Component, taken: Iterable[str]) -> Iterator[Port]:
    """Yield the outputs: those of the decorator and of paths, else what it returns, if it returns something."""
    names = list(dict.fromkeys((*function.outputs, *function.written)))
    descriptions = {param.arg_name: " ".join((param.description or "").split()) for param in docs.params}
    for name in names:
        encoding = function.written.get(name, "pickle")
        yield Port(name=name, usage="OutputPort", encoding=encoding, description=descriptions.get(name, ""))
    is_constructor = bool(base.ports) and base.ports[0].usage == "OutputPort"
    if names or is_constructor or function.returned in (None, type(None)):
        return
    returns = docs.returns
    name = (returns.return_name if returns else "") or "output"
    text = " ".join((returns.description or "").split()) if returns else ""
    name = name if name.isidentifier() and name not in (*taken, SELF) else "output"
    kind = port_type(function.returned)
    yield Port(name=name, usage="OutputPort", type=kind, description=text)


def _plain(value: Any) -> Any:
    """Return the function of a decorated one, or an object that has a module in any case."""
    function = value.function if isinstance(value, AppFunction) else value
    return function if isinstance(getattr(function, "__module__", None), str) else _plain


def _place(value: Any) -> str:
    """Return file and line of a function or class; empty if it has none."""
    function = _plain(value)
    try:
        return f"{inspect.getsourcefile(function)}:{max(1, inspect.getsourcelines(function)[1])}"
    except (OSError, TypeError):
        return ""
