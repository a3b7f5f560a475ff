"""The pictures of the design are up to date."""

import runpy

import pytest

from tests.docs.test_documents import ROOT
from tests.docs.test_names import exists

_FOLDER = ROOT / "docs" / "explanation"
_PICTURES = runpy.run_path(str(_FOLDER / "draw_pictures.py"))["PICTURES"]


@pytest.mark.parametrize("name", _PICTURES)
def test_a_picture_names_modules_and_classes_that_exist(name: str) -> None:
    """A renamed module or class is renamed in the pictures too."""
    assert [each for each in _PICTURES[name]().names if not exists(each)] == []


@pytest.mark.parametrize("name", _PICTURES)
def test_a_picture_is_the_output_of_its_script(name: str) -> None:
    """Run ``python docs/explanation/draw_pictures.py`` after changing it."""
    assert (_FOLDER / name).read_text(encoding="utf-8") == _PICTURES[name]().svg()
