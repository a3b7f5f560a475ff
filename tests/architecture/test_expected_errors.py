"""Tests that expect an error check its text."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_expected_error_has_a_text() -> None:
    """Each `pytest.raises` has `match`, so that another error of the same class does not pass for the expected one."""
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) == "pytest.raises"
        and "match" not in {keyword.arg for keyword in call.keywords}
    ]

    assert found == []
