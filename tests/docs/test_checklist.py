"""The tests that the checklist of the translator and the table of the pages name."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@pytest.mark.parametrize("name", ["translator-checklist.md", "web-features.md"])
def test_every_test_of_the_checklist_exists(name: str) -> None:
    """A test that is renamed or removed is changed on the page, too; every line of a table names one."""
    page = (REFERENCE / name).read_text(encoding="utf-8")
    missing = [f"{path}::{test}" for path, test in _NAMED.findall(page) if test not in _functions(ROOT / path)]
    lines = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| | ")]

    assert missing == []
    assert [line for line in lines if not _NAMED.search(line)] == []


def _functions(path: Path) -> set[str]:
    if not path.exists():
        return set()
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}
