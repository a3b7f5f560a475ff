"""The style sheets: dark colours as the system wants them, and as chosen, are the same."""

import re
from pathlib import Path

import pytest

import dropflow.rest
import managers.web

SHEETS = (
    Path(dropflow.rest.__file__).with_name("static") / "dropflow.css",
    Path(managers.web.__file__).with_name("static") / "content.css",
    Path(managers.web.__file__).with_name("static") / "timeline.css",
)


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda path: path.name)
def test_dark_is_the_same_twice(sheet: Path) -> None:
    """Each variable has the same value in both blocks."""
    text = sheet.read_text(encoding="utf-8")
    system = re.search(r':root:not\(\[data-theme="light"\]\) \{(.*?)\}', text, re.DOTALL)
    chosen = re.search(r':root\[data-theme="dark"\] \{(.*?)\}', text, re.DOTALL)

    assert system is not None
    assert chosen is not None
    found = [dict(re.findall(r"(--[\w-]+):\s*([^;]+);", block)) for block in (system[1], chosen[1])]
    assert found[0] == found[1] != {}
