"""Lookup of the functions and classes that a graph names, without importing or running anything.

A name is reported as missing only if that is certain. Sources are parsed; names that a module makes while it runs
(with ``exec``, ``globals()``, a star import, its own ``__getattr__``) and the contents of compiled modules are unknown.
"""

import ast
import importlib
import inspect
import sys
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path

_MAKES_NAMES = frozenset(
    {"exec", "eval", "globals", "locals", "vars", "setattr", "modules", "__dict__", "__import__", "__path__"}
)
"""Words in a source that make it impossible to list the names that it binds."""
_WORDS = (ast.Name, ast.Attribute)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True)
class MissingName:
    """A missing module, or a name that is missing in it."""

    module: str
    name: str = ""
    known: tuple[str, ...] = ()
    """Names that exist in the module."""


@dataclass(frozen=True)
class ModuleNames:
    """The names that running a source binds at its top level.

    Attributes
    ----------
    bound : frozenset of str
        All names.
    defined : tuple of str
        Names of functions and classes, in the order of the source.
    functions : frozenset of str
        Names that are bound only by ``def``.
    """

    bound: frozenset[str]
    defined: tuple[str, ...]
    functions: frozenset[str]


def find_absent(parts: Sequence[str]) -> MissingName | None:
    """Return the first part of a dotted name that is certainly missing on this host.

    Parameters
    ----------
    parts : sequence of str
        The dotted name in parts: modules first, then attributes.

    Returns
    -------
    MissingName or None
        None if the name exists, or if only an import would show that.
    """
    spec = find_spec(parts[0], None)
    if spec is None:
        return MissingName(parts[0])
    for place, part in enumerate(parts[1:], start=1):
        names = _names_in(spec)
        if names is not None and part in names.bound:
            return None
        within = spec.submodule_search_locations
        below = find_spec(".".join(parts[: place + 1]), within) if within is not None else None
        if below is None:
            return None if names is None else MissingName(".".join(parts[:place]), part, tuple(sorted(names.bound)))
        spec = below
    return None


def names_of(source: str | bytes) -> ModuleNames | None:
    """Return the names that `source` binds at its top level; None if only a run would show them, or for other text."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = list(ast.walk(tree))
    bound = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    defined: dict[str, bool] = {}
    for node in _own_nodes(tree):
        bound.update(_bound_by(node))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            is_function = not isinstance(node, ast.ClassDef) and not node.decorator_list
            defined[node.name] = defined.get(node.name, True) and is_function
    words = {node.id if isinstance(node, ast.Name) else node.attr for node in nodes if isinstance(node, _WORDS)}
    if "*" in bound or (words | bound) & _MAKES_NAMES:
        return None
    functions = frozenset(name for name, plain in defined.items() if plain and name not in bound)
    return ModuleNames(frozenset(bound | defined.keys()), tuple(defined), functions)


def signature_of(source: str, name: str) -> inspect.Signature | None:
    """Return the signature of a function that `source` defines; None if only a run would show it.

    Parameters
    ----------
    name : str
        Name of the function. The values of its defaults are unknown and given as None.
    """
    names = names_of(source)
    if names is None or name not in names.functions:
        return None
    nodes = list(_own_nodes(ast.parse(source)))
    if any(isinstance(node, ast.Name) and node.id == name for node in nodes):
        return None  # other uses of the name may replace the function
    definitions = [node for node in nodes if isinstance(node, _FUNCTIONS) and node.name == name]
    return inspect.Signature(list(_parameters(definitions[0].args))) if len(definitions) == 1 else None


def _parameters(arguments: ast.arguments) -> Iterator[inspect.Parameter]:
    kind = inspect.Parameter
    places: list[tuple[str, inspect._ParameterKind]] = [
        (posonlyarg.arg, kind.POSITIONAL_ONLY) for posonlyarg in arguments.posonlyargs
    ]
    places += [(argument.arg, kind.POSITIONAL_OR_KEYWORD) for argument in arguments.args]
    demanded = len(places) - len(arguments.defaults)
    for place, (name, how) in enumerate(places):
        yield kind(name, how, default=kind.empty if place < demanded else None)
    if arguments.vararg is not None:
        yield kind(arguments.vararg.arg, kind.VAR_POSITIONAL)
    for keyword, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield kind(keyword.arg, kind.KEYWORD_ONLY, default=kind.empty if default is None else None)
    if arguments.kwarg is not None:
        yield kind(arguments.kwarg.arg, kind.VAR_KEYWORD)


def _bound_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement or expression binds, without those of ``def`` and ``class``."""
    match node:
        case ast.Import():
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        case ast.ImportFrom():
            yield from (alias.asname or alias.name for alias in node.names)
        case ast.Name(ctx=ast.Store()):
            yield node.id
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name


def _own_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes in the scope of `tree` itself: functions and classes without their bodies."""
    waiting = deque(ast.iter_child_nodes(tree))
    while waiting:
        node = waiting.popleft()
        yield node
        if not isinstance(node, _SCOPES):
            waiting.extendleft(reversed(list(ast.iter_child_nodes(node))))


def find_spec(name: str, within: Sequence[str] | None) -> ModuleSpec | None:
    """Return the spec of the module `name`; `within` are the directories of its package."""
    if not name.rpartition(".")[2].isidentifier():
        return None
    # Not `importlib.util.find_spec`: that imports the parent packages.
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = find(name, within, None) if find is not None else None
        if spec is not None:
            return spec
    return ModuleSpec(name, None) if name in sys.modules else None


def _names_in(spec: ModuleSpec) -> ModuleNames | None:
    """Return the top-level names of a module; None if they are unknown."""
    if spec.origin in ("built-in", "frozen") or (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES)):
        return _compiled(spec.name)
    if spec.origin is None or not spec.has_location:
        # A namespace package holds only modules.
        return ModuleNames(frozenset(), (), frozenset()) if spec.submodule_search_locations is not None else None
    try:
        names = _parsed(spec.origin, Path(spec.origin).stat().st_mtime_ns)
    except OSError:
        return None
    return None if names is None or "__getattr__" in names.bound else names


@lru_cache(maxsize=256)
def _parsed(path: str, _changed: int) -> ModuleNames | None:
    if not path.endswith(".py"):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the style of installed modules
        return names_of(Path(path).read_bytes())


def _compiled(name: str) -> ModuleNames | None:
    """Return the names in a compiled module of the standard library. Importing it runs no code of users."""
    if name.partition(".")[0] not in sys.stdlib_module_names:
        return None
    try:
        attributes = vars(importlib.import_module(name))
    except ImportError:
        return None
    return None if "__getattr__" in attributes else ModuleNames(frozenset(attributes), tuple(attributes), frozenset())
