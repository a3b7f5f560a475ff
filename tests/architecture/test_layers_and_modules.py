"""Layers, packages, errors and imports."""

import ast
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import dropflow
import managers
import palettes
import translator
from dropflow import errors
from dropflow.cli.main import main as _main
from translator.problem_codes import CODES

ROOT = Path(__file__).resolve().parents[2]
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


def test_layers_hold() -> None:
    """Outer rings import inner ones, never the other way; the core reaches no I/O module."""
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_four_packages_are_in_one_directory() -> None:
    """No package of another distribution replaces one of dropflow's packages (ADR 0003)."""
    places = {Path(str(package.__file__)).parents[1] for package in PACKAGES}

    assert len(places) == 1


@pytest.mark.parametrize("name", _modules())
def test_every_module_has_a_docstring_and_its_public_names(name: str) -> None:
    """Each module has a docstring, each name in its `__all__` exists, and `__name__` is asked for at its end only."""
    if name.endswith(".ray_engine"):
        pytest.importorskip("ray", reason="Ray is not installed: it is large")
    module: ModuleType = importlib.import_module(name)

    assert module.__doc__
    assert [public for public in getattr(module, "__all__", []) if not hasattr(module, public)] == []
    *body, _ = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body
    assert not any(isinstance(part, ast.If) and "__main__" in ast.dump(part.test) for part in body)


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


def test_help_imports_nothing_heavy() -> None:
    """A command that only prints help imports neither numpy nor the engine."""
    heavy = ("numpy", "msgspec", "jsonschema", "rich", "rustworkx", "pymetis", "dropflow.engine.session")
    script = (
        "import sys, json\n"
        "from dropflow.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print(json.dumps([name for name in {heavy!r} if name in sys.modules]), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert json.loads(done.stderr.splitlines()[-1]) == []
    assert callable(_main)
