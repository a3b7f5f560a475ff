"""The fragments of the changelog."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FRAGMENTS = sorted((ROOT / "docs" / "changelog.d").glob("*.md"))
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*\.(added|changed|fixed|removed)\.md")


@pytest.mark.parametrize(
    "fragment", [each for each in FRAGMENTS if each.name != "README.md"], ids=lambda fragment: fragment.name
)
def test_fragments_are_one_paragraph_with_a_known_kind(fragment: Path) -> None:
    """A file with another kind would be missing from the changelog."""
    assert _NAME.fullmatch(fragment.name)
    text = fragment.read_text(encoding="utf-8")
    assert text.strip()
    assert "\n\n" not in text


def test_the_changelog_of_a_release_has_every_fragment(tmp_path: Path) -> None:
    """`make changelog VERSION=1.0.0` writes one entry per fragment below the version, by kind."""
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "docs" / "changelog.d", tmp_path / "docs" / "changelog.d")
    command = [Path(sys.executable).with_name("towncrier"), "build", "--keep", "--version", "1.0.0", "--dir", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    changelog = (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    before, version, later = changelog.partition("\n## 1.0.0 (")
    after, _, _ = later.partition("\n## ")
    assert before.startswith("# Changelog\n")
    assert version
    assert after.count("\n- ") == len(FRAGMENTS) - 1
    kinds = [line.removeprefix("### ") for line in after.splitlines() if line.startswith("### ")]
    assert kinds == [kind for kind in ("Added", "Changed", "Fixed", "Removed") if kind in kinds]
