"""The documentation site."""

import subprocess
import sys
from pathlib import Path

import pytest

from dropflow import errors
from dropflow.dask.lost_chunks import LostChunksError
from dropflow.dask.persist import LostContentsError
from tests.docs.test_documents import ROOT
from translator.problem_codes import CODES


@pytest.mark.slow
def test_the_site_has_every_page_and_an_anchor_for_each_code(tmp_path: Path) -> None:
    """Sphinx warns of nothing: links lead to pages and headings that exist, and every page is in the navigation.

    The theme is a plain one, which is built in half of the time.
    """
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-D",
        "html_theme=basic",
        "-c",
        ROOT / "docs",
    ]
    done = subprocess.run([*command, ROOT, tmp_path], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    page = (tmp_path / "docs" / "reference" / "problems.html").read_text(encoding="utf-8")
    kinds = [LostChunksError, LostContentsError, *(getattr(errors, name) for name in errors.__all__)]
    codes = {kind.code for kind in kinds if isinstance(kind, type) and issubclass(kind, errors.DropflowError)}
    assert [code for code in sorted({*codes, *CODES} - {"DF000"}) if f'id="{code}"' not in page] == []
