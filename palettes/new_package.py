"""A new package with one component, a test that runs it, and the entry point that registers it."""

import keyword
import re
from pathlib import Path

from dropflow.errors import UsageError

__all__ = ["create_package"]

_FILES = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"

[project]
name = "NAME"
version = "0.1.0"
description = "Components for dropflow"
requires-python = ">=3.11"
dependencies = ["dropflow"]

[project.optional-dependencies]
test = ["pytest"]

# Each component that palettes and nodes are to show: a function, a class, or a subclass of dropflow.App.
[project.entry-points."dropflow.components"]
scale = "NAME:scale"

[tool.setuptools.packages.find]
where = ["src"]

[tool.pytest.ini_options]
testpaths = ["tests"]
""",
    "README.md": """\
# NAME

Components for dropflow.

    pip install -e ".[test]"                # in the environment that runs dropflow
    pytest                                  # runs the component as a graph does
    dropflow palette build NAME             # writes NAME.palette, for EAGLE

Install it in the same way on each host that runs the components; `dropflow nodes --components` shows where it is.
A new component is a function with types and a docstring in `src/NAME/__init__.py`, a line in `pyproject.toml`, and
`pip install -e .` again.
""",
    "src/NAME/__init__.py": '''\
"""Components for dropflow."""

__all__ = ["scale"]


def scale(values: list[float], factor: float = 2.0) -> list[float]:
    """Multiply numbers by a factor.

    Parameters
    ----------
    values : list of float
        The numbers.
    factor : float
        What each is multiplied by.

    Returns
    -------
    scaled : list of float
        The products, in the same order.
    """
    return [factor * value for value in values]
''',
    "tests/test_NAME.py": '''\
"""The components do in a graph what they promise."""

from dropflow.testing import Given, try_app


def test_numbers_are_scaled(tmp_path):
    """Each number of the input is multiplied by the field `factor`."""
    got = try_app(
        "dlg.apps.pyfunc.PyFuncApp",
        tmp_path,
        inputs=[Given("values", [1.0, 2.5])],
        outputs=["scaled"],
        fields={"func_name": "NAME.scale", "factor": 3.0},
    )

    assert got.values == [[3.0, 7.5]]
''',
}
"""The files by path; NAME stands for the name of the package."""


def create_package(directory: Path) -> list[Path]:
    """Write a new package into a directory, which gives it its name, and return its files.

    Raises
    ------
    UsageError
        The directory has files, or its name cannot be that of a package.
    """
    name = re.sub(r"[-. ]+", "_", directory.resolve().name).lower()
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
        raise UsageError(
            f"{name!r} cannot be the name of a Python package", hint="give a directory with letters, digits and _"
        )
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} exists and is not an empty directory", hint="give a new directory")
    written = []
    for path, text in _FILES.items():
        file = directory / path.replace("NAME", name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("NAME", name), encoding="utf-8")
        written.append(file)
    return written
