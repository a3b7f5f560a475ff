"""Batch systems: how their lists of jobs are read."""

from pathlib import Path

import pytest

from managers.jobs.batch import SYSTEMS

_QSTAT = """
pbs-server:
                                                            Req'd  Req'd   Elap
Job ID          Username Queue    Jobname    SessID NDS TSK Memory Time  S Time
--------------- -------- -------- ---------- ------ --- --- ------ ----- - -----
1234567.pbs-ser user     workq    dropflow    29071   2  16    --  01:00 R 00:01
1234568.pbs-ser* user    workq    dropflow      --    2  16    --  01:00 Q   --
"""


def test_jobs_of_pbs_are_known_although_their_ids_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`qsub` prints the whole id, and `qstat` as much of it as its column holds. Another job is not known."""
    qstat = tmp_path / "qstat"
    qstat.write_text(f"#!/bin/sh\ncat <<'END'\n{_QSTAT}END\n")
    qstat.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    jobs = ["1234567.pbs-server.example.org", "1234568.pbs-server.example.org", "123456.pbs-server.example.org"]

    states = SYSTEMS["pbs"].states_of_jobs(jobs)

    assert {job: state.word for job, state in states.items()} == {jobs[0]: "RUNNING", jobs[1]: "PENDING"}


@pytest.mark.parametrize(
    ("letter", "word", "has_begun"),
    [("W", "PENDING", False), ("T", "PENDING", False), ("H", "HELD", False), ("S", "SUSPENDED", True)],
)
def test_jobs_of_pbs_that_wait_have_not_begun(letter: str, word: str, *, has_begun: bool) -> None:
    """A pool would cancel a job that has begun and has no node."""
    (state,) = (
        SYSTEMS["pbs"].read_states(_QSTAT.replace(" R 00:01", f" {letter} 00:01").partition("\n1234568")[0]).values()
    )

    assert (state.word, state.has_begun, state.is_over) == (word, has_begun, False)
