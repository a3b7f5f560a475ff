"""Cases of a parametrized test that only the exhaustive tests run, because another case has nearly the same promise."""

from typing import Any

import pytest


def nightly(*values: Any, **names: Any) -> list[Any]:
    """Return the values as cases of the exhaustive tests, those with a keyword under that name."""
    plain = [pytest.param(value, marks=pytest.mark.exhaustive) for value in values]
    return plain + [pytest.param(value, id=name, marks=pytest.mark.exhaustive) for name, value in names.items()]
