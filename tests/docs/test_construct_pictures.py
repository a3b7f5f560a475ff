"""The pictures of constructs are drawn by dropflow, and fresh."""

import re
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
DRAWN = runpy.run_path(str(FOLDER / "draw_constructs.py"))


@pytest.mark.parametrize("name", DRAWN["PICTURES"])
def test_pictures_are_fresh(name: str) -> None:
    """Run ``python docs/reference/draw_constructs.py`` after a change of unrolling or drawing."""
    assert (FOLDER / "constructs" / name).read_text(encoding="utf-8") == DRAWN["draw"](name)


def test_every_picture_is_on_the_page() -> None:
    """The page shows all pictures, and no others."""
    shown = set(re.findall(r"constructs/([a-z]+\.svg)", (FOLDER / "constructs.md").read_text(encoding="utf-8")))
    assert shown == set(DRAWN["PICTURES"]) == {path.name for path in (FOLDER / "constructs").iterdir()}
