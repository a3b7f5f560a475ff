"""Dask's own tests pass with dropflow as scheduler."""

import pytest

from tests.conformance.run_dask_tests import FAST, Findings, compare, main, run


def test_only_what_dask_itself_passes_counts() -> None:
    """A test that fails with both schedulers is no finding; one that fails with dropflow only needs a reason."""
    ours = {"both": "failed", "ours": "failed", "known": "failed", "passes": "passed", "skipped": "skipped"}
    theirs = {"both": "failed", "ours": "passed", "known": "passed"}

    found = compare(ours, theirs, {"known": "a reason", "passes": "an old reason", "not run": "a reason"})

    assert found == Findings(unexpected=("ours",), obsolete=("passes",))


@pytest.mark.slow
@pytest.mark.timeout(600)  # 10 s of processor time, on a machine that may be busy
def test_a_part_of_the_tests_of_dask_passes() -> None:
    """The fast part of dask's tests passes; `run_dask_tests.py` without arguments runs all of them."""
    assert main(["--fast", "--workers", "1"]) == 0


@pytest.mark.slow
def test_what_cannot_be_run_is_an_error() -> None:
    """Tests that do not exist are no success."""
    with pytest.raises(RuntimeError, match=r"dask's tests could not be run"):
        run("threads", ["array/tests/test_missing.py"], 1)

    assert FAST
