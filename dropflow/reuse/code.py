"""The code of an application, for its key: functions, the modules of the user that they import, and packages.

Nothing is imported or run: sources are found and parsed. A source counts by its syntax tree, so comments, blank lines
and formatting do not matter, and everything else does. Of the standard library and of installed packages the version
counts; all other modules are the user's, and count by their content, with the modules that they import in turn.
"""

import ast
import difflib
import hashlib
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import metadata
from importlib.util import decode_source
from pathlib import Path
from typing import NamedTuple

from dropflow.apps.check import find_spec
from dropflow.apps.functions.loaded_modules import is_user_file, module_name
from dropflow.errors import DropflowError
from dropflow.execution.executor_spec import KeyPart
from dropflow.reuse.result_store import ResultStore

_OURS = "dropflow"


class _Module(NamedTuple):
    """A source: the digest of its syntax tree, and the names of the modules that it imports."""

    digest: str
    imports: tuple[str, ...]


class CodeReader:
    """Finds what the code of functions and classes is, on this host.

    Parameters
    ----------
    store : ResultStore or None
        Where sources are kept, to say later which line has changed; None to keep none.
    """

    def __init__(self, store: ResultStore | None = None) -> None:
        self._store = store

    def of_source(self, source: str, name: str) -> tuple[KeyPart, ...]:
        """Return the parts of a function whose source is in the graph."""
        module = _parsed(source, "")
        own = KeyPart("function", name, module.digest, self._kept(source))
        return (own, *self._imported(module.imports))

    def of_name(self, name: str) -> tuple[KeyPart, ...]:
        """Return the parts of a function or class with a dotted name, which is imported where it runs."""
        return self._imported((name,))

    def _imported(self, names: tuple[str, ...]) -> tuple[KeyPart, ...]:
        parts_by_name: dict[tuple[str, str], KeyPart] = {}
        seen: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            for part, imports in self._modules(name):
                if (part.kind, part.name) not in parts_by_name:
                    parts_by_name[part.kind, part.name] = part
                    waiting += imports
        parts = sorted(parts_by_name.values(), key=lambda part: (part.kind, part.name))
        return (*parts, KeyPart("python", "", f"{sys.version_info.major}.{sys.version_info.minor}"))

    def _modules(self, name: str) -> Iterator[tuple[KeyPart, tuple[str, ...]]]:
        """Yield each module along a dotted name, whose last parts may be attributes, with what it imports."""
        top, *rest = name.split(".")
        if top in sys.stdlib_module_names or top == _OURS or not top:
            return
        within, dotted = None, ""
        for piece in (top, *rest):
            dotted = f"{dotted}.{piece}" if dotted else piece
            spec = find_spec(dotted, within)
            if spec is None:
                if dotted == top:
                    yield KeyPart("module", top, "not installed"), ()
                return
            within = spec.submodule_search_locations
            path = spec.origin if spec.has_location else None
            if path is not None and not is_user_file(path):
                yield KeyPart("package", top, _version(top)), ()
                return
            if path is not None:
                yield self._module(Path(path), dotted, is_package=within is not None)
            if within is None:
                return

    def _module(self, path: Path, name: str, *, is_package: bool) -> tuple[KeyPart, tuple[str, ...]]:
        shown = module_name(path, name)
        try:
            content = path.read_bytes()
            source = decode_source(content) if path.suffix == ".py" else ""
        except OSError:
            return KeyPart("module", shown, "unreadable"), ()
        except (SyntaxError, UnicodeDecodeError):
            source = ""
        if not source:  # a compiled module, or none that Python can read
            return KeyPart("module", shown, hashlib.blake2b(content, digest_size=16).hexdigest()), ()
        module = _parsed(source, name if is_package else name.rpartition(".")[0])
        return KeyPart("module", shown, module.digest, self._kept(source)), module.imports

    def _kept(self, source: str) -> str:
        if self._store is None:
            return ""
        try:
            return self._store.keep_bytes(source.encode())
        except DropflowError:
            return ""


@lru_cache(maxsize=1024)  # managers run for months, and sources change
def _parsed(source: str, package: str) -> _Module:
    """Return what counts of a source in a package."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        text = ast.dump(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _Module(hashlib.blake2b(source.encode(), digest_size=16).hexdigest(), ())
    imports: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports.update((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            imports.update((f"{base}.{alias.name}" if alias.name != "*" else base, None) for alias in node.names)
    return _Module(hashlib.blake2b(text.encode(), digest_size=16).hexdigest(), tuple(imports))


@lru_cache(maxsize=1)
def _packages(_changed: tuple[int, ...]) -> Mapping[str, list[str]]:
    """Return the packages of each module, as of when the directories with packages were changed."""
    return metadata.packages_distributions()


def _version(module: str) -> str:
    """Return the version of the installed package of a module; of several packages, all of them."""
    versions = []
    # A manager runs for months, and packages are installed meanwhile.
    changed = tuple(os.stat(place).st_mtime_ns for place in sys.path if os.path.isdir(place))  # noqa: PTH112, PTH116
    for name in sorted(set(_packages(changed).get(module, ()))):
        try:
            versions.append(metadata.version(name))
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(versions) or "unknown"


def is_same_code(before: str, now: str) -> bool:
    """Return whether two sources have the same syntax tree: comments and formatting do not count."""
    return _parsed(before, "").digest == _parsed(now, "").digest


@lru_cache(maxsize=64)  # each attempt of a node asks, and a module of thousands of lines takes a second
def first_changed_line(before: str, now: str) -> tuple[int, str] | None:
    """Return number and text of the first line of a source that differs; None if none does.

    Lines that have changed in comments and spaces only, and imports from ``__future__``, are passed over if others have
    changed, too.
    """
    old, new = before.splitlines(), now.splitlines()
    changes = difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes()
    for words in (_code, list):
        for tag, begin, end, start, stop in changes:
            if tag == "equal" or words(old[begin:end]) == words(new[start:stop]):
                continue
            at = next((number for number in range(start, stop) if words([new[number]])), start)
            return at + 1, (new[at].strip() if at < len(new) else "")
    return None


def _code(lines: Iterable[str]) -> list[str]:
    """Return lines without comments, spaces, and imports from ``__future__``."""
    kept = (line for line in lines if not line.startswith("from __future__ "))
    return [code for line in kept if (code := "".join(line.partition("#")[0].split()))]
