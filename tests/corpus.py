"""Finds the graphs of the community, which stay outside the project, and what DALiuGE makes of them.

They are looked for in ``$DROPFLOW_CORPUS`` and in ``../shared/graphs/corpus`` beside the project; tests that need them
carry the mark `needs_corpus`, which says so where they are absent.
"""

import csv
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.nightly import nightly

_PROJECT = Path(__file__).resolve().parent.parent
_FOLDER = Path(os.environ.get("DROPFLOW_CORPUS") or _PROJECT.parent / "shared" / "graphs" / "corpus")


def corpus_files() -> list[Path]:
    """Return all graph files of the corpus by name, or none if it is absent."""
    return sorted(path for path in _FOLDER.glob("*") if path.is_file())


def often(paths: list[Path]) -> list[Any]:
    """Return files as cases of a test: every fifth for `make test`, and the others for `make exhaustive`."""
    rest = {path: nightly(path)[0] for number, path in enumerate(paths) if number % 5}
    return [rest.get(path, path) for path in paths]


@cache
def daliuge_results() -> dict[str, dict[str, str]]:
    """Return the results of DALiuGE 6.7 by file name: the rows of the table beside the corpus."""
    with (_FOLDER.parent / "daliuge-6.7-results.csv").open(encoding="utf-8", newline="") as table:
        return {row["file"]: row for row in csv.DictReader(table)}


_MISSING = pytest.mark.skipif(not corpus_files(), reason="the corpus is absent: set DROPFLOW_CORPUS to its folder")


@cache
def daliuge_runs() -> dict[str, dict[str, str]]:
    """Return the outcomes of the graphs that DALiuGE 6.7 could run, by file name."""
    table = _FOLDER.parent / "daliuge-6.7-runs.csv"
    if not table.exists():
        return {}
    with table.open(encoding="utf-8", newline="") as rows:
        return {row["file"]: row for row in csv.DictReader(rows)}


def needs_corpus(test):  # noqa: ANN001, ANN201 - a decorator that answers what it is given
    """Mark a test that reads the corpus: it is skipped with this reason if the corpus is absent."""
    return pytest.mark.corpus(_MISSING(test))
