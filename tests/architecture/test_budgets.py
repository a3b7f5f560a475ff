"""The budgets of packages."""

import ast

from tests.architecture.house import budgets, sizes
from tests.architecture.sources import PRODUCT, files, parsed


def test_every_package_keeps_its_budget() -> None:
    """A change that needs more lines or files raises the budget in the same commit, with the reason."""
    allowed, found = budgets(), sizes()

    assert sorted(found) == sorted(allowed)
    assert {
        name: size
        for name, size in found.items()
        if size.lines > allowed[name].lines or size.files > allowed[name].files
    } == {}


def test_budgets_are_close_to_what_is_there() -> None:
    """A package that became smaller gives its budget back: the table tells how large the house is."""
    allowed, found = budgets(), sizes()

    assert {name: allowed[name] for name, size in found.items() if allowed[name].lines > 1.05 * size.lines + 60} == {}


def test_modules_import_each_other_in_one_direction() -> None:
    """No module imports, when it is loaded, one that imports it, directly or through others."""
    names = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in files(*PRODUCT)}
    imports = {
        name: {found for node in parsed(path).body for found in _imported(node) if found in names and found != name}
        for name, path in names.items()
    }
    left = dict(imports)
    while free := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in free:
            del left[name]

    assert sorted(left) == []


def _imported(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return []
