"""The tests that the checklist of the translator names."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "translator-checklist.md"
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_test_of_the_checklist_exists() -> None:
    """A test that is renamed or removed is changed on the page, too; every line of a table names one."""
    page = PAGE.read_text(encoding="utf-8")
    missing = [f"{path}::{name}" for path, name in _NAMED.findall(page) if name not in _functions(ROOT / path)]
    lines = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| | property")]

    assert missing == []
    assert [line for line in lines if not _NAMED.search(line)] == []


def _functions(path: Path) -> set[str]:
    if not path.exists():
        return set()
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}
