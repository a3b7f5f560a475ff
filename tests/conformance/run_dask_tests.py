"""Run the tests of the installed dask with dropflow as scheduler: ``python tests/conformance/run_dask_tests.py``.

``--nodes`` runs each computation as a session on two nodes, which takes half a second for each.

What fails is repeated with dask's synchronous scheduler. Each test that passes there must be in
``dask_exceptions.json``, with a reason; each test that is there must still fail. Otherwise the exit status is 1.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import dask

from dropflow.dask import RUNNERS

__all__ = ["FAST", "SUITES", "Findings", "compare", "main", "run"]

ROOT = Path(__file__).resolve().parents[2]
SUITES = ("array/tests", "bag/tests")
"""Relative to the package dask."""
FAST = ("array/tests/test_rechunk.py",)
"""Tests that use the scheduler in many ways and take a few seconds."""
_EXCEPTIONS = Path(__file__).with_name("dask_exceptions.json")
_FAILED, _PASSED = "failed", "passed"


@dataclass(frozen=True)
class Findings:
    """What differs from what is expected.

    Attributes
    ----------
    unexpected : tuple of str
        Tests that fail with dropflow only, without a reason.
    obsolete : tuple of str
        Tests with a reason that pass.
    """

    unexpected: tuple[str, ...]
    obsolete: tuple[str, ...]


def compare(ours: Mapping[str, str], theirs: Mapping[str, str], reasons: Mapping[str, str]) -> Findings:
    """Return what differs from what is expected.

    Parameters
    ----------
    ours, theirs : mapping of str to str
        Outcome of each test with dropflow; and with dask's scheduler, of those that failed with dropflow.
    reasons : mapping of str to str
        Why a test fails with dropflow.
    """
    failed = {name for name, outcome in ours.items() if outcome == _FAILED and theirs.get(name) == _PASSED}
    return Findings(
        unexpected=tuple(sorted(failed - reasons.keys())),
        obsolete=tuple(sorted(name for name in reasons if ours.get(name) == _PASSED)),
    )


def run(scheduler: str, names: Sequence[str], workers: int) -> dict[str, str]:
    """Run tests of dask, and return the outcome of each.

    Parameters
    ----------
    scheduler : str
        A runner of dropflow, or ``dask``.
    names : sequence of str
        Files, directories or tests, relative to the package dask.
    workers : int
        Number of processes.

    Raises
    ------
    RuntimeError
        The tests could not be collected.
    """
    package = Path(dask.__file__).parent
    with tempfile.TemporaryDirectory() as directory:
        report, settings_file = Path(directory, "report.json"), Path(directory, "pytest.ini")
        # Not our settings: an environment within this directory would have them.
        settings_file.write_text("[pytest]\n", encoding="utf-8")
        command = [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "--tb=short",
                "-p",
                "tests.conformance.dask_plugin",
                "-c",
                str(settings_file),
                f"--rootdir={package}",
            ),
            *("-p", "no:randomly", "-p", "no:cacheprovider", "-n", str(workers if workers > 1 else 0), "--timeout=300"),
            *(str(package / name) for name in names),
        ]
        path = os.pathsep.join((str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])))
        settings = {"DASK_CONFORMANCE": scheduler, "DASK_CONFORMANCE_REPORT": str(report), "PYTHONPATH": path}
        # In a directory of its own: dask's tests write files.
        done = subprocess.run(
            command, cwd=directory, env={**os.environ, **settings}, capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, 1) or not report.exists():
            raise RuntimeError(f"dask's tests could not be run:\n{done.stdout}{done.stderr}")
        outcomes: dict[str, str] = json.loads(report.read_text(encoding="utf-8"))
    return outcomes


def _reasons(*, travels: bool) -> Mapping[str, str]:
    """Return why tests fail: everywhere, and, if values travel, in other processes."""
    known: dict[str, dict[str, str]] = json.loads(_EXCEPTIONS.read_text(encoding="utf-8"))
    return {**known["everywhere"], **(known["other processes"] if travels else {})}


@contextmanager
def _two_nodes() -> Iterator[str]:
    """Start an island with two nodes, and yield its address; its token is in the environment."""
    sys.path.insert(0, str(ROOT))
    from tests.e2e.cluster import Cluster  # noqa: PLC0415 - only with --nodes, and after the line above

    with tempfile.TemporaryDirectory() as home, Cluster(Path(home)) as cluster:
        island = cluster.island(*cluster.nodes("one", "two"))
        os.environ["DROPFLOW_TOKEN"] = island.ready["token"]
        yield island.ready["url"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests, print what differs, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"files or tests in the package dask; by default {' '.join(SUITES)}")
    parser.add_argument("--nodes", action="store_true", help="compute on two nodes that are started for it")
    parser.add_argument("--fast", action="store_true", help="only a part that takes a few seconds")
    parser.add_argument("--runner", default="threads", choices=RUNNERS)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    chosen = parser.parse_args(arguments)
    names = chosen.names or (FAST if chosen.fast else SUITES)
    with ExitStack() as stack:
        where = stack.enter_context(_two_nodes()) if chosen.nodes else chosen.runner
        ours = run(where, names, chosen.workers)
        failed = [name for name, outcome in ours.items() if outcome == _FAILED]
        theirs = run("dask", failed, chosen.workers) if failed else {}
    findings = compare(ours, theirs, _reasons(travels=chosen.nodes or chosen.runner == "processes"))
    passed = sum(outcome == _PASSED for outcome in ours.values())
    place = "two nodes" if chosen.nodes else f"runner {chosen.runner}"
    print(f"dask {dask.__version__}, {place}: {passed} of {len(ours)} tests passed, {len(failed)} failed")
    for name in failed:
        print(f"  {name}: {theirs.get(name)} with dask's synchronous scheduler")
    for name in findings.unexpected:
        print(f"fails with dropflow only, and has no reason in {_EXCEPTIONS.name}: {name}")
    for name in findings.obsolete:
        print(f"passes, and still has a reason in {_EXCEPTIONS.name}: {name}")
    return 1 if findings.unexpected or findings.obsolete or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
