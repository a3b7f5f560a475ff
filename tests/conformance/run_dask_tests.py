"""Run the tests of the installed dask and xarray with dropflow as scheduler.

Usage: ``python tests/conformance/run_dask_tests.py [--suite NAME] [--runner RUNNER | --nodes] [--part 2/5]``.

``--runner`` chooses where tasks run; ``--nodes`` runs each computation as a session on two nodes, which are started for
it. ``--runner dask`` is dask's synchronous scheduler, to compare with. ``--part 2/5`` runs the second fifth of the
tests, and ``--log`` keeps what pytest writes. On a busy machine, the tests with hundreds of graphs need a longer
``--timeout``.

What fails is repeated with dask's synchronous scheduler. Each test that passes there must be in
``dask_exceptions.json``, with a reason; each test that is there must still fail. Otherwise the exit status is 1.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # as a script, it finds only its own directory

from dropflow.dask import RUNNERS  # noqa: E402
from tests.conformance.dask_suites import FAST, SUITES, Suite  # noqa: E402

SYNCHRONOUS = "dask"
"""The name of dask's synchronous scheduler here."""
EXCEPTIONS = Path(__file__).with_name("dask_exceptions.json")
"""Why tests fail, by the kind of scheduler."""
TIMEOUT = 300.0
"""Seconds after which a test fails, unless ``--timeout`` has others."""
_FAILED, _PASSED = "failed", "passed"


@dataclass(frozen=True)
class Outcomes:
    """How tests ended.

    Attributes
    ----------
    ends : mapping of str to str
        ``passed``, ``failed`` or ``skipped``, by the name of the test.
    computed : mapping of str to int
        How many graphs a test had the scheduler compute.
    """

    ends: Mapping[str, str] = field(default_factory=dict)
    computed: Mapping[str, int] = field(default_factory=dict)

    @property
    def failed(self) -> list[str]:
        """Names of the tests that failed."""
        return [name for name, outcome in self.ends.items() if outcome == _FAILED]

    def summary(self) -> str:
        """Return the counts as a line."""
        counts = Counter(self.ends.values())
        with_graphs = sum(self.computed.get(name, 0) > 0 for name, outcome in self.ends.items() if outcome == _PASSED)
        graphs = sum(self.computed.values())
        return (
            f"{counts[_PASSED]} passed, {with_graphs} of them computed something ({graphs} graphs); "
            f"{counts[_FAILED]} failed, {counts['skipped']} skipped"
        )


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


def run(
    scheduler: str,
    suite: Suite,
    workers: int,
    *,
    part: str = "1/1",
    log: Path | None = None,
    timeout: float = TIMEOUT,
) -> Outcomes:
    """Run tests, and return the outcome of each.

    Parameters
    ----------
    scheduler : str
        A runner of dropflow, the address of a manager, or ``dask``.
    suite : Suite
        The tests.
    workers : int
        Number of processes.
    part : str
        Which part of them, of how many: ``2/5``.
    log : Path, optional
        File to which what pytest writes is appended while it runs.
    timeout : float
        Seconds after which a test fails.

    Raises
    ------
    RuntimeError
        The tests could not be collected.
    """
    found = find_spec(suite.package)
    if found is None or found.origin is None:
        raise RuntimeError(f"{suite.package} is not installed")
    packages = Path(found.origin).parents[1]
    with tempfile.TemporaryDirectory() as directory:
        report, settings_file = Path(directory, "report.json"), Path(directory, "pytest.ini")
        # Not our settings: an environment within this directory would have them.
        settings_file.write_text("[pytest]\n", encoding="utf-8")
        command = [
            *(sys.executable, "-m", "pytest", "-p", "tests.conformance.dask_plugin"),
            *("-v", "--tb=short", "--disable-warnings"),  # with names: the last ones of the log show what hangs
            *("-c", str(settings_file), f"--rootdir={packages}", "-m", "not network and not flaky"),
            "--continue-on-collection-errors",  # of files whose packages are missing; they fail with dask, too
            *("-p", "no:randomly", "-p", "no:cacheprovider", "-n", str(workers if workers > 1 else 0)),
            f"--timeout={timeout}",
            *(("-k", suite.chosen) if suite.chosen else ()),
            *(str(packages / name) for name in suite.names),
        ]
        settings = {
            "DASK_CONFORMANCE": scheduler,
            "DASK_CONFORMANCE_PART": part,
            "DASK_CONFORMANCE_REPORT": str(report),
            "PYTHONPATH": os.pathsep.join((str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")]))),
        }
        written = Path(directory, "pytest.log") if log is None else log.resolve()
        with written.open("ab") as stream:  # not kept in memory: the file shows where a test hangs
            before = stream.tell()
            # In a directory of its own: the tests write files.
            done = subprocess.run(
                command,
                cwd=directory,
                env={**os.environ, **settings},
                stdout=stream,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode not in (0, 1) or not report.exists():
            text = written.read_bytes()[before:].decode(errors="replace")
            raise RuntimeError(f"the tests of {suite.package} could not be run:\n{text[-4000:]}")
        outcomes: dict[str, tuple[str, int]] = json.loads(report.read_text(encoding="utf-8"))
    return Outcomes(
        {name: end for name, (end, _) in outcomes.items()}, {name: count for name, (_, count) in outcomes.items()}
    )


def _reasons(scheduler: str) -> Mapping[str, str]:
    """Return why tests fail with a scheduler: everywhere, if values travel, and on nodes."""
    known: dict[str, dict[str, str]] = json.loads(EXCEPTIONS.read_text(encoding="utf-8"))
    is_remote = "://" in scheduler
    return {
        **known["everywhere"],
        **(known["other processes"] if is_remote or scheduler == "processes" else {}),
        **(known["nodes"] if is_remote else {}),
    }


@contextmanager
def _two_nodes() -> Iterator[str]:
    """Start an island with two nodes, and yield its address; its token is in the environment."""
    from tests.e2e.cluster import Cluster  # noqa: PLC0415 - only with --nodes

    with tempfile.TemporaryDirectory() as home, Cluster(Path(home)) as cluster:
        # On a busy machine, nodes that answer late are not lost.
        times = ("--suspect-after", 60, "--lost-after", 120)
        island = cluster.island(*(cluster.node(name, *times) for name in ("one", "two")), more=times)
        os.environ["DROPFLOW_TOKEN"] = island.ready["token"]
        yield island.ready["url"]


def _run_suite(name: str, suite: Suite, scheduler: str, chosen: argparse.Namespace) -> bool:
    """Run a suite, print what differs, and return whether all is as expected."""
    ours = run(scheduler, suite, chosen.workers, part=chosen.part, log=chosen.log, timeout=chosen.timeout)
    place = "two nodes" if "://" in scheduler else f"runner {scheduler}"
    version = metadata.version(suite.package)
    print(f"{name}, {suite.package} {version}, {place}, part {chosen.part}: {ours.summary()}", flush=True)
    if scheduler == SYNCHRONOUS:
        return True
    theirs = Outcomes()
    if ours.failed:
        again = Suite(suite.package, tuple(ours.failed))
        theirs = run(SYNCHRONOUS, again, chosen.workers, log=chosen.log, timeout=chosen.timeout)
    findings = compare(ours.ends, theirs.ends, _reasons(scheduler))
    for test in ours.failed:
        print(f"  {test}: {theirs.ends.get(test)} with dask's synchronous scheduler")
    for test in findings.unexpected:
        print(f"fails with dropflow only, and has no reason in {EXCEPTIONS.name}: {test}")
    for test in findings.obsolete:
        print(f"passes, and still has a reason in {EXCEPTIONS.name}: {test}")
    has_passed = any(outcome == _PASSED for outcome in ours.ends.values())
    return has_passed and not findings.unexpected and not findings.obsolete


def _part(text: str) -> str:
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if found is None or int(found[1]) > int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is no part such as 2/5")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests, print what differs, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="files or tests, such as dask/bag/tests/test_text.py; then no suites")
    parser.add_argument("--suite", action="append", choices=SUITES, help="by default all of them")
    parser.add_argument("--fast", action="store_true", help="only a part that takes a few seconds")
    parser.add_argument("--nodes", action="store_true", help="compute on two nodes that are started for it")
    parser.add_argument("--runner", default="threads", choices=(*RUNNERS, SYNCHRONOUS))
    parser.add_argument("--part", type=_part, default="1/1", help="run only a part of the tests, such as 2/5")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds after which a test fails")
    parser.add_argument("--log", type=Path, help="append what pytest writes to this file")
    chosen = parser.parse_args(arguments)
    suites: Mapping[str, Suite] = {name: SUITES[name] for name in chosen.suite or SUITES}
    if chosen.fast:
        suites = {"fast": FAST}
    if chosen.names:
        package = chosen.names[0].split("/")[0]
        suites = {"chosen": Suite(package, tuple(chosen.names))}
    with ExitStack() as stack:
        scheduler = stack.enter_context(_two_nodes()) if chosen.nodes else chosen.runner
        found = [_run_suite(name, suite, scheduler, chosen) for name, suite in suites.items()]
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
