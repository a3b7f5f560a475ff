"""The code in the guides runs, and its tests pass."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("guide", "tests"),
    [
        ("howto/write-an-application.md", 5),
        ("howto/streaming.md", 1),
        ("howto/dask.md", 10),
        ("howto/write-a-runner.md", 4),
        ("reference/python.md", 3),
        ("tutorial/python.md", 4),
    ],
)
def test_the_tests_in_the_guide_pass(guide: str, tests: int, tmp_path: Path) -> None:
    """Every Python block is a file, with its name in the first line; the tests in these files pass."""
    text = (DOCS / guide).read_text(encoding="utf-8")
    blocks = _BLOCK.findall(text)
    for name, code in blocks:
        (tmp_path / name).write_text(code)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert len(blocks) == text.count("```python")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tests} passed" in done.stdout
