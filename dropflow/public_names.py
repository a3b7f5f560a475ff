"""Public names are imported when they are first used, so that the import of their package is quick (PEP 562)."""

import sys
from collections.abc import Container, Mapping
from importlib import import_module


def imported(package: str, modules: Mapping[str, Container[str]], name: str) -> object:
    """Return a name from the first module that has it, and keep it in the package, whose ``__getattr__`` calls this.

    Parameters
    ----------
    package : str
        Its full name.
    modules : mapping of str to (container of str)
        The names that it has from each module.
    name : str
        The name.

    Raises
    ------
    AttributeError
        No module has it.
    """
    for module, names in modules.items():
        if name in names:
            value: object = getattr(import_module(module), name)
            setattr(sys.modules[package], name, value)
            return value
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
