"""Modules and classes that docstrings name exist."""

import ast
import re

import pytest

from tests.architecture.sources import PRODUCT, ROOT, TESTS, files, parsed
from tests.docs.test_names import exists

_NAME = re.compile(r"(?<!`)`((?:dropflow|managers|translator|palettes)(?:\.\w+)+)`(?!`)")


def _names() -> dict[str, str]:
    """Return a place of each dotted name between single backticks in a docstring."""
    return {
        name: f"{path}:{getattr(node, 'lineno', 1)}"
        for path in files(*PRODUCT, *TESTS)
        if _NAME.search((ROOT / path).read_text(encoding="utf-8"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        for name in _NAME.findall(ast.get_docstring(node) or "")
    }


@pytest.mark.slow
def test_modules_and_classes_that_docstrings_name_exist() -> None:
    """A renamed module or class is renamed in the docstrings too."""
    names = _names()

    assert "dropflow.api.operations" in names
    assert {place: name for name, place in names.items() if not exists(name)} == {}
