"""Layers, modules, names, errors, locks, and the budgets of packages."""

import ast
import importlib
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise, takewhile
from pathlib import Path
from types import ModuleType

import grimp
import pytest

import dropflow
import managers
import palettes
import translator
from dropflow import errors
from dropflow.cli.main import main as _main
from tests.architecture.house import budgets, sizes
from tests.architecture.sources import PRODUCT, ROOT, TESTS, files, parsed
from translator.problem_codes import CODES

PACKAGES = (dropflow, translator, managers, palettes)


def _modules() -> list[str]:
    found = []
    for package in PACKAGES:
        found.append(package.__name__)
        walked = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
        found += [module.name for module in walked if not module.name.endswith("__main__")]
    return sorted(found)


def _errors(root: type[errors.DropflowError]) -> list[type[errors.DropflowError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _errors(child))]


def test_the_four_packages_are_in_one_directory() -> None:
    """No package of another distribution replaces one of dropflow's packages (ADR 0003)."""
    places = {Path(str(package.__file__)).parents[1] for package in PACKAGES}

    assert len(places) == 1


def test_the_docstring_of_a_package_lists_its_modules() -> None:
    """The table of contents of a package, if it has one, names each module and package in it, and nothing else."""
    wrong = {}
    for path in files(*PRODUCT):
        if path.name != "__init__.py":
            continue
        listed = set(re.findall(r"^`(\w+)`  ", ast.get_docstring(parsed(path)) or "", re.MULTILINE))
        room = ROOT / path.parent
        found = {each.stem for each in room.glob("*.py")} | {each.parent.name for each in room.glob("*/__init__.py")}
        if listed and listed != found - {"__init__", "__main__"}:
            wrong[str(path)] = listed ^ (found - {"__init__", "__main__"})

    assert wrong == {}


def test_the_docstring_of_a_package_lists_its_scripts() -> None:
    """A table names each script in ``static/``, with the first sentence of the comment at its head."""
    for path in files(*PRODUCT):
        if path.name != "__init__.py":
            continue
        rows = re.findall(r"^``(\w+\.js)`` +(.+(?:\n +.+)*)", ast.get_docstring(parsed(path)) or "", re.MULTILINE)
        scripts = (ROOT / path.parent / "static").glob("*.js")

        assert {name: " ".join(words.split()) for name, words in rows} == {
            script.name: _first_sentence(script) for script in scripts
        }, path


def _first_sentence(script: Path) -> str:
    lines = takewhile(lambda line: line.startswith("//"), script.read_text(encoding="utf-8").splitlines())
    return re.split(r"\.(?: |$)", " ".join(" ".join(lines).replace("//", " ").split()))[0]


def test_the_drawing_of_the_rings_follows_the_contract() -> None:
    """The docstring of dropflow has each of its packages where the contract has it: those of one line in one layer."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = [re.split(r" [|:] ", layer) for layer in project["tool"]["importlinter"]["contracts"][0]["layers"]]
    lines = re.findall("^    dropflow.*?  ", dropflow.__doc__ or "", re.MULTILINE)
    drawn = [re.findall(r"dropflow\.\w+", line) for line in lines]

    def layer_of(name: str) -> int:
        return next(row for row, names in enumerate(layers) if any(f"{each}.".startswith(f"{name}.") for each in names))

    rows = [{layer_of(name) for name in line} for line in drawn]
    assert all(len(row) == 1 for row in rows)
    assert [row.pop() for row in rows] == sorted({layer_of(name) for line in drawn for name in line})
    packages = {f"dropflow.{path.parent.name}" for path in (ROOT / "dropflow").glob("*/__init__.py")}
    assert packages <= {name for line in drawn for name in line}


@pytest.mark.slow
def test_every_module_has_a_docstring_and_its_public_names() -> None:
    """Each module has a docstring, each name in its `__all__` exists, and `__name__` is asked for at its end only."""
    for name in _modules():
        if name.endswith(".ray_engine") and find_spec("ray") is None:  # it is large
            continue
        module: ModuleType = importlib.import_module(name)

        assert module.__doc__, name
        assert [public for public in getattr(module, "__all__", []) if not hasattr(module, public)] == [], name
        text = Path(str(module.__file__)).read_text(encoding="utf-8")
        if "__main__" in text:
            *body, _ = ast.parse(text).body
            assert not any(isinstance(part, ast.If) and "__main__" in ast.dump(part.test) for part in body), name


def test_error_codes_are_unique() -> None:
    """Every class of the error tree has its own code."""
    codes = [error.code for error in _errors(errors.DropflowError)]

    assert sorted(codes) == sorted(set(codes))


def test_the_drawing_of_the_error_tree_is_complete() -> None:
    """The tree drawn at the head of `dropflow.errors` names every class of it."""
    drawn = errors.__doc__ or ""

    assert [error.__name__ for error in _errors(errors.DropflowError) if error.__name__ not in drawn] == []


def test_problem_codes_have_meanings() -> None:
    """Every problem code has a meaning."""
    assert all(meaning for _, meaning in CODES.values())


@pytest.mark.slow
def test_help_imports_nothing_heavy() -> None:
    """A command that only prints help imports neither numpy nor sessions."""
    heavy = ("numpy", "msgspec", "jsonschema", "rich", "rustworkx", "pymetis", "dropflow.execution.session")
    script = (
        "import sys, json\n"
        "from dropflow.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print(json.dumps([name for name in {heavy!r} if name in sys.modules]), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert json.loads(done.stderr.splitlines()[-1]) == []
    assert callable(_main)


# Modules and the packages that contain them.


@pytest.mark.slow
def test_no_module_imports_a_package_that_contains_it() -> None:
    """A package may import its modules; the other way round would be a cycle that depends on the order of imports."""
    graph = grimp.build_graph(*PRODUCT)
    found = [
        (module, parent)
        for module in graph.modules
        for parent in graph.find_modules_directly_imported_by(module)
        if module.startswith(f"{parent}.")
    ]

    assert found == []


# Locks in the managers.


_LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore"}
_MOST = 9


def _locks() -> Iterator[tuple[str, str]]:
    """Yield place and text of the line of every lock in the managers, with the three lines before it."""
    for path in files("managers"):
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _LOCKS:
                yield f"{path}:{node.lineno}", "\n".join(lines[max(0, node.lineno - 4) : node.lineno])


@pytest.mark.slow
def test_managers_have_fewer_than_ten_locks() -> None:
    """The state of a manager has one owner, a thread with a queue, so that few locks remain."""
    places = [place for place, _ in _locks()]

    assert len(places) <= _MOST, places


@pytest.mark.slow
def test_every_lock_has_a_comment() -> None:
    """A comment at each lock has what it guards, and why a queue would not do."""
    assert [place for place, lines in _locks() if "#" not in lines] == []


# Each code of an error is that of one class.


_CODE = re.compile(r"DF\d{3}")


@pytest.mark.slow
def test_every_error_code_is_written_once() -> None:
    """A code such as DF105 is that of one class of errors; all other code names the class."""
    paths = [path for path in files(*PRODUCT) if _CODE.search((ROOT / path).read_text(encoding="utf-8"))]
    nodes = [(path, node) for path in paths for node in ast.walk(parsed(path))]
    fields = [part for _, one in nodes if isinstance(one, ast.ClassDef) for part in one.body]
    codes = [field.value for field in fields if isinstance(field, ast.Assign | ast.AnnAssign)]
    codes = [code for code in codes if _is_error_code(code)]
    written = [f"{path}:{node.lineno}" for path, node in nodes if _is_error_code(node) and node not in codes]

    assert written == []
    assert [code for code, count in Counter(map(ast.unparse, codes)).items() if count > 1] == []


def _is_error_code(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_CODE.fullmatch(node.value))


# Names of classes and files.


_ENDINGS = ("s", "es", "ed", "er", "ers", "ing", "ings", "or", "ors")


def _classes() -> list[tuple[str, ast.ClassDef]]:
    return [
        (str(path), node)
        for path in files(*PRODUCT)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    ]


def _stem(name: str) -> str:
    """Return a word without the longest of the usual endings, and without the e before it."""
    for ending in sorted(_ENDINGS, key=len, reverse=True):
        if name.endswith(ending) and len(name) - len(ending) >= 3:
            return name.removesuffix(ending).rstrip("e")
    return name.rstrip("e")


@pytest.mark.slow
def test_no_two_classes_share_a_name() -> None:
    """A name in a log, a traceback or a search belongs to one class. That includes private classes."""
    counts = Counter(node.name for _, node in _classes())
    shared = {name for name, count in counts.items() if count > 1}

    assert sorted(shared) == []


def test_no_two_files_of_a_directory_differ_by_an_ending() -> None:
    """Names such as `fetch.py`, `fetching.py` and `fetchers.py` in one directory do not show what is in which."""
    scripts = [path for each in PRODUCT for path in (ROOT / each).rglob("*.js")]
    keys = sorted((str(path.parent), _stem(path.stem), path.stem) for path in [*files(*PRODUCT), *scripts])
    similar = {
        f"{directory}: {first}, {second}"
        for (directory, stem, first), (other, other_stem, second) in pairwise(keys)
        if (directory, stem) == (other, other_stem)
    }

    assert sorted(similar) == []


# The budgets of packages.


@pytest.mark.slow
def test_every_package_keeps_its_budget() -> None:
    """A change that needs more lines or files raises the budget in the same commit, with the reason.

    A package that became smaller gives its budget back: the table tells how large the house is.
    """
    allowed, found = budgets(), sizes()

    assert sorted(found) == sorted(allowed)
    assert {
        name: size
        for name, size in found.items()
        if size.lines > allowed[name].lines or size.files > allowed[name].files
    } == {}
    assert {name: allowed[name] for name, size in found.items() if allowed[name].lines > 1.05 * size.lines + 60} == {}


@pytest.mark.slow
def test_modules_import_each_other_in_one_direction() -> None:
    """No module imports, when it is loaded, one that imports it, directly or through others."""
    names = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in files(*PRODUCT)}
    imports = {
        name: {found for node in parsed(path).body for found in _imported(node) if found in names and found != name}
        for name, path in names.items()
    }
    left = dict(imports)
    while free := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in free:
            del left[name]

    assert sorted(left) == []


@pytest.mark.slow
def test_modules_of_tests_are_not_imported_from() -> None:
    """What several test modules need is in a module beside them, or is a fixture."""
    wrong = {
        (str(path), name)
        for path in files(*TESTS)
        for node in ast.walk(parsed(path))
        for name in _imported(node)
        if re.match(r"tests\..*\btest_", name) and name.split(".")[-1] != path.stem
    }

    assert sorted(wrong) == []


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return []
