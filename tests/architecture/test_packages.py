"""The list of packages of a wheel."""

import tomllib
from pathlib import Path

from tests.architecture.sources import PRODUCT

_ROOT = Path(__file__).resolve().parents[2]


def test_wheels_have_all_packages() -> None:
    """``pyproject.toml`` lists every package: setuptools does not look for them."""
    listed = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = [path.parent.relative_to(_ROOT) for top in PRODUCT for path in (_ROOT / top).rglob("__init__.py")]

    assert sorted(listed) == sorted(".".join(folder.parts) for folder in folders)
