"""Modules and the packages that contain them."""

import grimp

from tests.architecture.sources import PRODUCT


def test_no_module_imports_a_package_that_contains_it() -> None:
    """A package may import its modules; the other way round would be a cycle that depends on the order of imports."""
    graph = grimp.build_graph(*PRODUCT)
    found = [
        (module, parent)
        for module in graph.modules
        for parent in graph.find_modules_directly_imported_by(module)
        if module.startswith(f"{parent}.")
    ]

    assert found == []
