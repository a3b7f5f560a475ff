"""Dask's own tests pass with dropflow as scheduler."""

import json

import pytest

from tests.conformance.dask_suites import FAST, SUITES, Suite
from tests.conformance.run_dask_tests import EXCEPTIONS, Findings, compare, main, run
from tests.nightly import nightly


def test_only_what_dask_itself_passes_counts() -> None:
    """A test that fails with both schedulers is no finding; one that fails with dropflow only needs a reason."""
    ours = {"both": "failed", "ours": "failed", "known": "failed", "passes": "passed", "skipped": "skipped"}
    theirs = {"both": "failed", "ours": "passed", "known": "passed"}

    found = compare(ours, theirs, {"known": "a reason", "passes": "an old reason", "not run": "a reason"})

    assert found == Findings(unexpected=("ours",), obsolete=("passes",))


@pytest.mark.slow
@pytest.mark.timeout(600)  # 5 s of processor time, on a machine that may be busy
@pytest.mark.parametrize("part", ["1/4", *nightly("2/4", "3/4", "4/4")])
def test_a_part_of_the_tests_of_dask_passes(part: str) -> None:
    """A part of dask's own tests passes; `run_dask_tests.py` runs all of them."""
    assert main(["--fast", "--workers", "1", "--part", part]) == 0


@pytest.mark.slow
def test_what_cannot_be_run_is_an_error() -> None:
    """Tests that do not exist are no success."""
    with pytest.raises(RuntimeError, match=r"the tests of dask could not be run"):
        run("threads", Suite("dask", ("dask/array/tests/test_missing.py",)), 1)
    with pytest.raises(RuntimeError, match=r"dask_that_is_missing is not installed"):
        run("threads", Suite("dask_that_is_missing", ("tests",)), 1)


def test_reasons_name_tests_of_the_suites() -> None:
    """Each test with a reason belongs to a suite, and has a reason that tells more than that it fails."""
    known: dict[str, dict[str, str]] = json.loads(EXCEPTIONS.read_text(encoding="utf-8"))
    places = tuple(name for suite in SUITES.values() for name in suite.names)

    assert all(
        test.startswith(places) and len(reason) > 20 for tests in known.values() for test, reason in tests.items()
    )
    assert FAST.names[0].startswith(places)
