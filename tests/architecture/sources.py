"""The Python files of the project, parsed once."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("dropflow", "translator", "managers", "palettes")
TESTS = ("tests",)


def files(*directories: str) -> list[Path]:
    """Return all Python files below these directories, relative to the root."""
    return sorted(path.relative_to(ROOT) for each in directories for path in (ROOT / each).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))
