"""Test suites of the installed dask and xarray that run with dropflow as scheduler."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Suite:
    """Tests of one package.

    Attributes
    ----------
    package : str
        Which has the tests.
    names : tuple of str
        Files, directories or tests, relative to the directory that has the package.
    chosen : str
        Expression of pytest (``-k``) for the names of tests; empty for all.
    """

    package: str
    names: tuple[str, ...]
    chosen: str = ""


SUITES: Mapping[str, Suite] = {
    "array": Suite("dask", ("dask/array/tests",)),
    "bag": Suite("dask", ("dask/bag/tests",)),
    "dataframe": Suite("dask", ("dask/dataframe",)),
    "delayed": Suite("dask", ("dask/tests/test_delayed.py",)),
    "xarray": Suite(
        "xarray",
        tuple(
            f"xarray/tests/test_{name}.py"
            for name in (
                *(
                    "dask",
                    "variable",
                    "dataarray",
                    "dataset",
                    "datatree",
                    "groupby",
                    "computation",
                    "concat",
                    "combine",
                ),
                *("backends", "duck_array_ops", "interp", "missing", "rolling", "coarsen", "namedarray"),
                *("accessor_dt", "accessor_str", "parallelcompat"),
            )
        ),
        "dask or chunk",
    ),
}
"""By the name that ``run_dask_tests.py`` takes."""


FAST = Suite("dask", ("dask/array/tests/test_rechunk.py",), "not image_stack and not non_perfect")
"""Tests that use the scheduler in many ways and take a few seconds."""
