"""Small functions for Python function nodes; graphs know them as ``dlg.apps.simple_functions.*`` too.

Their names are DALiuGE's, hence the camelCase.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["createMultiOut", "createRange", "getMax", "readLines", "string2json"]


def readLines(filename: str) -> list[str]:  # noqa: N802 - the name that graphs use
    """The lines of the text file `filename`, without their ends."""
    return Path(filename).read_text(encoding="utf-8").splitlines()


def createRange(end: int = 10, start: int = 0, step: int = 1) -> list[int]:  # noqa: N802 - see readLines
    """The whole numbers from `start` up to, but without, `end`."""
    return list(range(start, end, step))


def createMultiOut(v1: Any = 1, v2: Any = 2) -> dict[str, Any]:  # noqa: N802 - see readLines
    """`v1` for the output port ``out1``, `v2` for ``out2``."""
    return {"out1": v1, "out2": v2}


def getMax(values: Iterable[Any]) -> Any:  # noqa: N802 - see readLines
    """The largest of `values`."""
    return max(values)


def string2json(string: str | None = None) -> Any:
    """What the JSON text `string` says; None for no text."""
    return json.loads(string) if string and string.strip() else None
