"""The size of the house: code lines and files of each package. ``python -m tests.architecture.house`` prints them.

A code line is a line with code that is neither comment, docstring nor blank.
"""

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BUDGETS = Path(__file__).with_name("budgets.toml")
_TOPS = ("dropflow", "translator", "managers", "palettes", "tests")
_PAGES = (".html", ".tpl", ".js", ".css")


class Size(NamedTuple):
    """How large a package is, or may become.

    Attributes
    ----------
    lines, files : int
        Code lines, and files with Python code, ``__init__.py`` included.
    """

    lines: int
    files: int


@cache
def sizes(root: Path = ROOT) -> dict[str, Size]:
    """Return the size of each package by its path; ``tests`` and ``pages`` (HTML, scripts, styles) are one each."""
    found: dict[str, Size] = {}
    for top in _TOPS:
        for path in sorted((root / top).rglob("*")):
            if path.suffix == ".py":
                name = "tests" if top == "tests" else path.parent.relative_to(root).as_posix()
                count = _code_lines(path.read_text(encoding="utf-8"))
            elif path.suffix in _PAGES and top != "tests":
                name = "pages"
                count = sum(bool(line.strip()) for line in path.read_text(encoding="utf-8").splitlines())
            else:
                continue
            lines, files = found.get(name, Size(0, 0))
            found[name] = Size(lines + count, files + 1)
    return found


def budgets() -> dict[str, Size]:
    """Return how large each package may be."""
    return {name: Size(*row) for name, row in tomllib.loads(BUDGETS.read_text(encoding="utf-8")).items()}


def _code_lines(text: str) -> int:
    documented, quoted = set[int](), set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno:
            quoted.update(_lines(node))  # a blank line, or one with #, may be inside
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documented.update(_lines(node))  # a docstring, also that of an attribute or a constant
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    return len(({number for number, line in lines if line and line[0] != "#"} | quoted) - documented)


def _lines(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _print() -> None:
    allowed, found = budgets(), sizes()
    print(f"{'package':30} {'code lines':>10} {'budget':>8} {'files':>6} {'budget':>8}")
    for name, size in found.items():
        budget = allowed.get(name, Size(0, 0))
        print(f"{name:30} {size.lines:10,} {budget.lines:8,} {size.files:6,} {budget.files:8,}")
    product = [size for name, size in found.items() if name not in ("tests", "pages")]
    print(f"{'product':30} {sum(row.lines for row in product):10,} {'':8} {sum(row.files for row in product):6,}")


if __name__ == "__main__":
    _print()
