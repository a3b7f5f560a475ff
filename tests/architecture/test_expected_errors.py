"""Tests that expect an error check its text."""

import ast

from tests.architecture.sources import TESTS, files, parsed


def _is_raises(call: ast.Call) -> bool:
    function = call.func
    return isinstance(function, ast.Attribute) and function.attr == "raises"


def test_every_expected_error_has_a_text() -> None:
    """Each `pytest.raises` has `match`, so that another error of the same class does not pass for the expected one."""
    found = [
        f"{path}:{node.lineno}"
        for path in files(*TESTS)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and _is_raises(node) and "match" not in {each.arg for each in node.keywords}
    ]

    assert found == []
