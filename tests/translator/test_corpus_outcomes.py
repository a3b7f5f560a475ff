"""Every graph of the community translates, or has errors with codes: `corpus_outcomes.csv` is the whole list.

After a change that is meant, write it again: ``python -m tests.translator.test_corpus_outcomes``.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

from dropflow.failure import Severity
from tests.corpus import corpus_files, needs_corpus
from translator.pipeline import examine

TABLE = Path(__file__).with_name("corpus_outcomes.csv")
COLUMNS = ("file", "family", "drops", "edges", "errors")


def outcomes() -> Iterator[tuple[str, ...]]:
    """Yield a row for each logical graph: its family, and its numbers of drops and edges or the codes of its errors."""
    for path in corpus_files():
        found = examine(path)
        if found.plan is None:
            continue
        errors = sorted({one.code for one in found.problems if one.severity is Severity.ERROR})
        sizes = ("", "") if errors else (str(found.plan.drops), str(found.plan.edges))
        yield path.name, found.family, *sizes, " ".join(errors)


def table() -> list[tuple[str, ...]]:
    """Return the rows of the committed table."""
    with TABLE.open(encoding="utf-8", newline="") as lines:
        return [tuple(row[name] for name in COLUMNS) for row in csv.DictReader(lines)]


@needs_corpus
def test_the_table_of_outcomes_is_complete_and_fresh() -> None:
    """Each logical graph has one line, and it is what the translator finds."""
    assert list(outcomes()) == table()


def test_nearly_all_graphs_translate() -> None:
    """At least 199 of 215; the others have errors with codes."""
    rows = table()
    refused = [row for row in rows if row[-1]]

    assert len(rows) >= 215
    assert len(refused) <= 16


if __name__ == "__main__":
    with TABLE.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(outcomes())
