"""Large libraries that a module of tests imports when one of its tests first uses them.

Each process of pytest collects all tests, and so imports what their modules import, also if it runs none of them.
"""

import importlib
from typing import Any


class LazyModule:
    """Stand for a module, and import it when one of its names is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest looks for marks of its own while it collects
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)
