"""The code of a function as a module of its own: what the field ``func_code`` of a node has.

The module has the function without its decorators, and what the function uses of the module around it: imports, other
functions of the same file, and constants that can be written as literals. Anything else is an error when the function
is used in a graph, and not when the graph runs on another machine.
"""

import ast
import builtins
import dis
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

from dropflow.errors import UsageError

__all__ = ["code_of", "import_path"]

_LITERALS = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (list, tuple, set, frozenset)
_BY_HAND = "or give @app(imported=True), if its module is installed where the graph runs"


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


def code_of(*wanted: types.FunctionType) -> str:
    """Return the source of a module that defines functions.

    Raises
    ------
    UsageError
        The source of one is not known, or it uses something that cannot be written into the module.
    """
    lines: dict[str, str] = {}
    functions: dict[str, str] = {}
    for function in wanted:
        _add(function, lines, functions, as_name=function.__name__)
    head = "".join(f"{line}\n" for line in sorted(lines.values(), key=_order))
    return "\n\n".join(part for part in (head, *reversed(functions.values())) if part)


def _add(function: types.FunctionType, lines: dict[str, str], functions: dict[str, str], *, as_name: str) -> None:
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
    functions[as_name] = ""  # known from here on, as functions may call each other
    used = dict.fromkeys(_globals_of(function.__code__))
    evaluated = [*tree.args.defaults, *(one for one in tree.args.kw_defaults if one is not None)]
    used |= dict.fromkeys(name.id for each in evaluated for name in ast.walk(each) if isinstance(name, ast.Name))
    for name in used:
        if name in function.__globals__:
            _add_global(name, function.__globals__[name], title, lines, functions)
        elif not hasattr(builtins, name):
            raise UsageError(f"{title} uses {name!r}, which is not defined", hint="define or import it")
    if any(not hasattr(builtins, name) for name in _annotated(tree)):
        lines["__future__"] = "from __future__ import annotations"
    functions[as_name] = _plain_text(function, tree)


def _add_global(name: str, value: Any, title: str, lines: dict[str, str], functions: dict[str, str]) -> None:
    """Add a global of a function to its module."""
    value = getattr(value, "__wrapped__", value) if type(value).__name__ == "AppFunction" else value
    if name in lines or name in functions:
        return
    if isinstance(value, types.ModuleType):
        lines[name] = f"import {value.__name__}" + ("" if value.__name__ == name else f" as {name}")
    elif isinstance(value, types.FunctionType) and not _is_installed(value):
        if value.__name__ != name:
            raise UsageError(f"{title} uses {value.__name__} under the name {name!r}", hint="call it by its own name")
        _add(value, lines, functions, as_name=name)
    elif _is_literal(value):
        lines[name] = f"{name} = {value!r}"
    elif _is_installed(value):
        own = value.__name__
        lines[name] = f"from {value.__module__} import {own}" + ("" if own == name else f" as {name}")
    else:
        kind = type(value).__name__
        raise UsageError(
            f"{title} uses the global {name!r}, a {kind} that cannot be written into the graph",
            hint=f"give it as an argument, define it inside the function, {_BY_HAND}",
        )


def _is_installed(value: Any) -> bool:
    """Return whether a function or class is an attribute of an installed module, not of the user's own file."""
    name, module = getattr(value, "__qualname__", ""), inspect.getmodule(value)
    if not name or "." in name or module is None or getattr(module, name, None) is not value:
        return False
    path = getattr(module, "__file__", None)
    return path is None or any(part in path for part in ("site-packages", "dist-packages", "/lib/python"))


def _is_literal(value: Any) -> bool:
    if isinstance(value, dict):
        return type(value) is dict and all(_is_literal(one) for pair in value.items() for one in pair)
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
        found = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError) as error:
        raise UsageError(
            f"the source of {title} is not known",
            hint=f"define it in a file or a notebook, {_BY_HAND}",
        ) from error
    if not isinstance(found, ast.FunctionDef):
        raise UsageError(f"{title} is not an ordinary function", hint="define it with def")
    return found


def _annotated(tree: ast.FunctionDef) -> Iterator[str]:
    """Yield the names in the annotations of a function."""
    arguments = [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs, tree.args.vararg, tree.args.kwarg]
    for annotation in (tree.returns, *(one.annotation for one in arguments if one is not None)):
        if annotation is not None:
            yield from (node.id for node in ast.walk(annotation) if isinstance(node, ast.Name))


def _plain_text(function: types.FunctionType, tree: ast.FunctionDef) -> str:
    """Return the text of a function as it was written, comments included, from its ``def``."""
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    return "\n".join(lines[tree.lineno - 1 : tree.end_lineno]) + "\n"


def _order(line: str) -> tuple[bool, bool, str]:
    return not line.startswith("from __future__"), not line.startswith(("import ", "from ")), line


def _title(function: Callable[..., Any]) -> str:
    return f"the function {getattr(function, '__qualname__', None) or repr(function)!s}"
