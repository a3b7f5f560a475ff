"""Names of classes and files."""

import ast
from collections import Counter
from itertools import pairwise

from tests.architecture.sources import PRODUCT, files, parsed

_SIMILAR_FILES = {
    # Commands, each in the file of its name.
    "dropflow/cli: node, nodes",
    "dropflow/cli: translate, translator",
}

_ENDINGS = ("s", "es", "ed", "er", "ers", "ing", "ings", "or", "ors")


def _classes() -> list[tuple[str, ast.ClassDef]]:
    return [
        (str(path), node)
        for path in files(*PRODUCT)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    ]


def _stem(name: str) -> str:
    """Return a word without the longest of the usual endings, and without the e before it."""
    for ending in sorted(_ENDINGS, key=len, reverse=True):
        if name.endswith(ending) and len(name) - len(ending) >= 3:
            return name.removesuffix(ending).rstrip("e")
    return name.rstrip("e")


def test_no_two_classes_share_a_name() -> None:
    """A name in a log, a traceback or a search belongs to one class. That includes private classes."""
    counts = Counter(node.name for _, node in _classes())
    shared = {name for name, count in counts.items() if count > 1}

    assert sorted(shared) == []


def test_no_two_files_of_a_directory_differ_by_an_ending() -> None:
    """Names such as `fetch.py`, `fetching.py` and `fetchers.py` in one directory do not show what is in which."""
    keys = sorted((str(path.parent), _stem(path.stem), path.stem) for path in files(*PRODUCT))
    similar = {
        f"{directory}: {first}, {second}"
        for (directory, stem, first), (other, other_stem, second) in pairwise(keys)
        if (directory, stem) == (other, other_stem)
    }

    assert sorted(similar - _SIMILAR_FILES) == []
