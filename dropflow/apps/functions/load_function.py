"""Loads Python objects that a graph names, or whose code it contains.

A node gives a function in one of three ways: as the source of a module that defines it (``func_code``), as a pickle
(``func_code`` in base64, as DALiuGE's Python API writes it), or as a dotted name, which is imported.
"""

import base64
import binascii
import builtins
import importlib
import importlib.util
import inspect
import linecache
import pickle
import re
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

from dropflow.apps.check import find_absent, names_of
from dropflow.errors import AppError, BadParameterError, MissingDependencyError, install_hint
from dropflow.failure import summary_of
from dropflow.formatting import did_you_mean

MOVED = {"dlg.apps.simple_functions": "dropflow.apps.functions.function"}
"""Modules of DALiuGE whose functions dropflow has under another name."""

_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_PICKLE_START = b"\x80"


def compile_source(source: str, where: str, file: str = "") -> types.CodeType:
    """Compile `source`, which may be in a file, without running it.

    Raises
    ------
    BadParameterError
        It is not Python; the error gives the line and the reason.
    """
    filename = file or f"<func_code of {where}>"
    try:
        return compile(source, filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as problem:
        line = getattr(problem, "lineno", None)
        at = f" in line {line}: {(problem.text or '').strip()!r}" if isinstance(problem, SyntaxError) and line else ""
        reason = problem.msg if isinstance(problem, SyntaxError) else str(problem)
        raise BadParameterError(
            f"func_code is not Python: {reason}{at}",
            fields=("func_code",),
            where=where,
            hint="correct the field func_code of this node",
        ) from problem


def object_from_source(code: types.CodeType, source: str, name: str, where: str) -> Callable[..., Any]:
    """Run `code` in a new module that is not in ``sys.modules``, and return the object called `name`.

    Parameters
    ----------
    code : types.CodeType
        See `compile_source`.
    source : str
        Source of `code`; tracebacks show its lines.
    name : str
        Name of the function; only the last parts of a dotted name need to exist. Empty if the source defines only one.
    where : str
        Name of the node, for messages.

    Raises
    ------
    BadParameterError
        The source does not define `name`.
    Exception
        Any exception of the source.
    """
    filename = code.co_filename
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    module = types.ModuleType(f"func_code_{re.sub(r'[^0-9A-Za-z]+', '_', where)}")
    module.__file__ = filename
    exec(code, module.__dict__)  # noqa: S102 - this application runs functions of graphs
    defined = {
        key: value
        for key, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    }
    if not name and len(defined) == 1:
        return _callable(next(iter(defined.values())), name, where)
    parts = name.split(".")
    for start in range(len(parts)):
        member = _walk(module, parts[start:]) if parts[start] in vars(module) else None
        if member is not None:
            return _callable(member, name, where)
    raise _not_defined(name, defined, where)


def refuse_source(source: str, name: str, where: str) -> None:
    """Raise the error of `object_from_source` if it is certain without running `source`.

    Raises
    ------
    BadParameterError
        The source certainly does not define `name`.
    """
    names = names_of(source)
    if names is None:
        return
    if name:
        is_there = any(part in names.bound for part in name.split("."))
    else:
        # A single function needs no name. Callables that are not made by a plain def are found only by running.
        is_there = len(names.functions) < 2 and bool(names.bound)
    if not is_there:
        raise _not_defined(name, names.defined, where)


def _not_defined(name: str, defined: Iterable[str], where: str) -> BadParameterError:
    there = list(defined)
    several = "several functions" if there else "no function"
    return BadParameterError(
        f"func_code does not define '{name}'" if name else f"func_name is empty and func_code defines {several}",
        fields=("func_name",),
        where=where,
        hint=f"func_code defines {', '.join(there) or 'no function'}{_did_you_mean(name.rpartition('.')[2], there)}",
    )


def is_pickled(text: str) -> bool:
    """Return whether `text` is a pickle in base64, and not source."""
    if not _BASE64.fullmatch(text):
        return False
    try:
        return base64.b64decode("".join(text.split()), validate=True).startswith(_PICKLE_START)
    except (binascii.Error, ValueError):
        return False


def object_from_pickle(text: str, where: str) -> Any:
    """Load a pickle in base64, made by the standard library, cloudpickle or dill.

    Raises
    ------
    MissingDependencyError
        The object needs a package that is not installed.
    AppError
        The pickle cannot be read.
    """
    body = base64.b64decode("".join(text.split()))
    try:
        # A user who may run the graph may run this.
        return pickle.loads(body)  # noqa: S301 - a graph is code
    except ModuleNotFoundError as problem:
        package = (problem.name or "").partition(".")[0]
        hint = install_hint("dill") if package == "dill" else _install_hint(package)
        raise MissingDependencyError(
            f"the pickled function needs the module '{problem.name}', which is not installed", where=where, hint=hint
        ) from problem
    except Exception as problem:
        raise AppError(
            f"func_code is a pickle that cannot be read: {summary_of(problem)}",
            where=where,
            hint="it may come from another Python version; give the source of the function instead",
        ) from problem


def import_object(name: str, where: str) -> Callable[..., Any]:
    """Import the callable with the dotted `name`.

    The first part is a module or a builtin; the others are attributes or submodules. A final ``__init__`` or
    ``__class__`` means the class itself.

    Raises
    ------
    MissingDependencyError
        A module is not installed.
    BadParameterError
        A module or class has no such attribute, or the object cannot be called.
    AppError
        A module raised while it was imported.
    """
    name, parts = name_parts(name)
    value = _builtin(parts)
    if value is not None:
        return _callable(value, name, where)
    _refuse_short(name, parts, where)
    value = _import(parts[0], name, where)
    for place, part in enumerate(parts[1:], start=1):
        try:
            value = getattr(value, part)
        except AttributeError:
            value = _submodule(value, parts[: place + 1], name, where)
    return _callable(value, name, where)


def refuse_name(name: str, where: str) -> None:
    """Raise the error of `import_object` if it is certain without an import.

    Raises
    ------
    MissingDependencyError, BadParameterError
        As `import_object`.
    """
    name, parts = name_parts(name)
    builtin = _builtin(parts)
    if builtin is not None:
        _callable(builtin, name, where)
        return
    _refuse_short(name, parts, where)
    absent = find_absent(parts)
    if absent is None:
        return
    if not absent.name:
        raise _not_installed(name, absent.module, where)
    raise _no_attribute(name, f"the module '{absent.module}'", absent.name, absent.known, where)


def name_parts(name: str) -> tuple[str, list[str]]:
    """Return `name` in dropflow, and its parts without a final ``__init__`` or ``__class__``."""
    for old, new in MOVED.items():
        if name.startswith(f"{old}."):
            name = new + name[len(old) :]
    parts = [part.strip() for part in name.split(".")]
    while len(parts) > 1 and parts[-1] in ("__init__", "__class__"):
        parts.pop()
    return name, parts


def _builtin(parts: list[str]) -> Any:
    is_there = parts[0] not in ("__init__", "__class__") and hasattr(
        builtins, parts[0]
    )  # attributes of the module `builtins` itself
    return _walk(builtins, parts) if is_there else None


def _refuse_short(name: str, parts: list[str], where: str) -> None:
    """Raise if `parts` is not a dotted name of at least two parts."""
    if len(parts) == 1 or not all(part.isidentifier() for part in parts):
        raise BadParameterError(
            f"func_name is '{name}', which is not a builtin function",
            fields=("func_name",),
            where=where,
            hint="write package.module.function, or give the source in func_code"
            + _did_you_mean(parts[0], dir(builtins)),
        )


def _submodule(parent: Any, parts: list[str], name: str, where: str) -> Any:
    """Import the submodule of `parent` with the name of the last of `parts`."""
    dotted = ".".join(parts)
    if hasattr(parent, "__path__") and importlib.util.find_spec(dotted) is not None:
        return _import(dotted, name, where)
    kind = "module" if inspect.ismodule(parent) else "class" if inspect.isclass(parent) else "object"
    raise _no_attribute(name, f"the {kind} '{'.'.join(parts[:-1])}'", parts[-1], dir(parent), where)


def _no_attribute(name: str, parent: str, part: str, known: Iterable[str], where: str) -> BadParameterError:
    return BadParameterError(
        f"func_name is '{name}', but {parent} has no '{part}'",
        fields=("func_name",),
        where=where,
        hint=f"check the version that is installed{_did_you_mean(part, known)}",
        of_host=True,
    )


def _not_installed(name: str, module: str, where: str) -> MissingDependencyError:
    return MissingDependencyError(
        f"the function '{name}' needs the module '{module}', which is not installed",
        where=where,
        hint=_install_hint(module.partition(".")[0]),
        of_host=True,
    )


def _import(module: str, name: str, where: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as problem:
        raise _not_installed(name, problem.name or module, where) from problem
    except Exception as problem:
        raise AppError(
            f"the module '{module}' of the function '{name}' cannot be imported: {summary_of(problem)}",
            where=where,
        ) from problem


def _walk(root: Any, parts: Iterable[str]) -> Any:
    """Follow attribute names from `root`; None if one does not exist."""
    parts = list(parts)
    while len(parts) > 1 and parts[-1] in ("__init__", "__class__"):
        parts.pop()
    value = root
    for part in parts:
        value = getattr(value, part, None)
        if value is None:
            return None
    return value


def _callable(value: Any, name: str, where: str) -> Callable[..., Any]:
    if not callable(value):
        raise BadParameterError(
            f"func_name is '{name}', which is a {type(value).__name__} and cannot be called",
            where=where,
            hint="name a function, a method or a class",
        )
    return value  # type: ignore[no-any-return]  # callable() is all we can know


def _install_hint(package: str) -> str:
    return f"install {package} in the environment that runs dropflow ({sys.prefix}), or put its code on PYTHONPATH"


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    hint = did_you_mean(name, known, cutoff=0.75)
    return hint and f"; {hint}"
