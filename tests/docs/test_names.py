"""Names of modules, classes and files in the documents exist."""

import importlib
import re
from pathlib import Path

import pytest

from tests.docs.test_documents import DOCUMENTS, ROOT

_CODE = re.compile(r"`([^`\n]+)`")
_DOTTED = re.compile(r"(?:dropflow|managers|translator|palettes)(?:\.\w+)+")
_PATH = re.compile(r"(?:dropflow|managers|translator|palettes|tests|docs|examples|benchmarks)/[\w./-]*")
# Class names in graphs, and a file of a user.
_OTHERS = {"dropflow.apps.GroupByApp", "translator.py"}


def exists(dotted: str) -> bool:
    """Return whether this is a module, or an attribute of one."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            if not hasattr(found, name) and name not in getattr(found, "__struct_fields__", ()):
                return False
            found = getattr(found, name, None)
        return True
    return False


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_modules_and_files_that_documents_name_exist(document: Path) -> None:
    """A renamed module or file is renamed in the documents too."""
    codes = _CODE.findall(document.read_text(encoding="utf-8"))
    names = {code for code in codes if _DOTTED.fullmatch(code)} - _OTHERS
    paths = {code for code in codes if _PATH.fullmatch(code)}

    assert sorted(name for name in names if not exists(name)) == []
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []
