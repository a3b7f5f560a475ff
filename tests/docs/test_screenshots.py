"""The pictures of pages in the documents."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.test_documents import DOCUMENTS, ROOT

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


def test_a_picture_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """The script does not write it."""
    image = pytest.importorskip("PIL.Image")
    image.effect_noise((1200, 760), 100).save(tmp_path / "noise.png")

    with pytest.raises(ValueError, match="more than 150,000"):
        _script().compressed((tmp_path / "noise.png").read_bytes())
