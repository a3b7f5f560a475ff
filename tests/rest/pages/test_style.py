"""The style sheets: each colour is given once, for light and for dark."""

import re
from pathlib import Path

import pytest

import managers.web
from dropflow.web.frame import STATIC

SHEETS = (
    STATIC / "dropflow.css",
    Path(managers.web.__file__).with_name("static") / "content.css",
    Path(managers.web.__file__).with_name("static") / "timeline.css",
)


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda path: path.name)
def test_each_colour_is_given_once(sheet: Path) -> None:
    """No variable is defined twice, and each colour has a light and a dark value, which differ."""
    text = sheet.read_text(encoding="utf-8")
    names = re.findall(r"^\s*(--[\w-]+):", text, re.MULTILINE)
    pairs = re.findall(
        r"^\s*--[\w-]+: light-dark\((#[0-9a-f]{6}|rgb\([^)]*\)), (#[0-9a-f]{6}|rgb\([^)]*\))\);", text, re.MULTILINE
    )

    assert len(names) == len(set(names))
    assert pairs or not names, "a sheet may use the colours of another one only"
    assert all(light != dark for light, dark in pairs)
    assert not re.search(r"^\s*--[\w-]+: (#|rgb)", text, re.MULTILINE)
    assert "prefers-color-scheme" not in text
