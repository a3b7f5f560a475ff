"""The reference of problem codes is complete and correct."""

import re
from pathlib import Path

from translator.problem_codes import CODES, problem

ROOT = Path(__file__).resolve().parents[2]
_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (.*?) \| (.+?) \| (.+?) \|$", re.MULTILINE)


def test_the_reference_lists_every_code_once_with_its_severity_and_meaning() -> None:
    """`docs/reference/problems.md` has one row for each code, in their order, with an example and advice."""
    rows = _ROW.findall((ROOT / "docs" / "reference" / "problems.md").read_text(encoding="utf-8"))
    listed = [(code, severity, meaning) for code, severity, meaning, _, _ in rows]

    assert listed == [(code, severity.value, meaning) for code, (severity, meaning) in CODES.items()]


def test_every_code_that_is_used_has_a_meaning() -> None:
    """All codes in the sources are in the table, and each code of the table is used."""
    folders = [ROOT / "translator", ROOT / "dropflow"]
    sources = [path for folder in folders for path in folder.rglob("*.py") if path.name != "problem_codes.py"]
    used = {code for path in sources for code in re.findall(r'"((?:LG|PG|PT)\d{3})"', path.read_text(encoding="utf-8"))}

    assert used == set(CODES)


def test_a_finding_has_the_usual_severity_of_its_code() -> None:
    """The table gives the severity where the caller does not."""
    assert problem("LG002", "x").severity is CODES["LG002"][0]
