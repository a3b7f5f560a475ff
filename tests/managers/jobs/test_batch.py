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
