"""The documents tell the truth: their commands run, their links lead somewhere."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")]
)
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def _commands(document: Path) -> list[str]:
    """Lines that start with ``$ `` in the console blocks of a document."""
    blocks = _BLOCK.findall(document.read_text(encoding="utf-8"))
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


_WITH_COMMANDS = [
    pytest.param(document, id=str(document.relative_to(ROOT))) for document in DOCUMENTS if _commands(document)
]


@pytest.mark.slow
@pytest.mark.parametrize("document", _WITH_COMMANDS)
def test_commands_of_the_documents_run(document: Path, tmp_path: Path) -> None:
    """Each document's console commands run, one after another, in a directory that holds only `examples/`.

    A command that is meant to fail says so: ``$ command   # exits with 2``.
    """
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    for command in _commands(document):
        expected = re.search(r"# exits with (\d+)", command)
        done = subprocess.run(
            ["/bin/bash", "-c", command],
            cwd=tmp_path,
            env={"PATH": path, "HOME": str(tmp_path), "COLUMNS": "120"},
            capture_output=True,
            text=True,
            check=False,
        )

        assert done.returncode == (int(expected[1]) if expected else 0), f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    """Every relative link of a document points at a file of the repository."""
    links = _LINK.findall(document.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]

    assert [link for link in local if not (document.parent / link).exists()] == []
