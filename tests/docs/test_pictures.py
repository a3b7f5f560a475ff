"""The pictures in the documents are up to date."""

import importlib.util
import re
import runpy
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.documents import DOCUMENTS, ROOT, exists

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


# The pictures of constructs are drawn by dropflow, and fresh.


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


# The pictures of pages in the documents.


PICTURES = ROOT / "docs" / "pictures"


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("take_screenshots", ROOT / "docs" / "take_screenshots.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_are_those_of_the_script_and_small() -> None:
    """`make pictures` makes each picture, in the same size, of less than 150 kB; and each is in a document."""
    image = pytest.importorskip("PIL.Image")
    script = _script()
    found = sorted(PICTURES.iterdir())
    shown = "".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)

    assert [path.stem for path in found] == sorted(script.SHOWN)
    for path in found:
        with image.open(path) as picture:
            assert picture.size == script.SIZE
        assert path.stat().st_size <= script.LARGEST
        assert f"pictures/{path.name})" in shown, path.name


@pytest.mark.slow
def test_a_picture_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """The script does not write it."""
    image = pytest.importorskip("PIL.Image")
    image.effect_noise((1200, 760), 100).save(tmp_path / "noise.png")

    with pytest.raises(ValueError, match="more than 150,000"):
        _script().compressed((tmp_path / "noise.png").read_bytes())
