"""Errors: tests that expect one check its text, and each code is that of one class."""

import ast
import re
from collections import Counter

from tests.architecture.sources import PRODUCT, TESTS, files, parsed

_CODE = re.compile(r"DF\d{3}")


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


def test_every_error_code_is_written_once() -> None:
    """A code such as DF105 is that of one class of errors; all other code names the class."""
    classes = [node for path in files(*PRODUCT) for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef)]
    fields = [node for one in classes for node in one.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    codes = [field.value for field in fields if _is_error_code(field.value)]
    written = [
        f"{path}:{node.lineno}"
        for path in files(*PRODUCT)
        for node in ast.walk(parsed(path))
        if _is_error_code(node) and node not in codes
    ]

    assert written == []
    assert [code for code, count in Counter(map(ast.unparse, filter(None, codes))).items() if count > 1] == []


def _is_error_code(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_CODE.fullmatch(node.value))
