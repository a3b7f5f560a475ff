"""MPI jobs: the ranks of a job run one command together."""

import os
import sys
from pathlib import Path

import pytest

from dropflow.errors import BadGraphError, MissingDependencyError
from dropflow.graph.physical import PhysicalGraph
from dropflow.sessions import local_run
from dropflow.states import SessionState
from tests.translator.drawing import Drawing
from translator.logical import Field
from translator.options import PartitionOptions
from translator.pipeline import translate
from translator.plan.registry import partition

COMMAND = 'echo "$DROPFLOW_RANK of $DROPFLOW_RANKS" > {out}'


def job(command: str, ranks: int = 3, copies: int = 1, **fields: object) -> PhysicalGraph:
    """Return an MPI job in each copy of a scatter, between data and a file."""
    drawing = Drawing()
    with drawing.scatter("S", copies):
        drawing.data("given", pydata="text")
        out = Field(id="m.out", name="out", usage="OutputPort", encoding="path")
        drawing.app("m", "Mpi", dropclass="", num_of_procs=ranks, command=command, out=out, **fields)
        drawing.data("made", "File")
    drawing.link("given", "m").link("m", "made", ports=("m.out", ""))
    return translate(drawing.graph()).graph


def run(graph: PhysicalGraph, directory: Path, runner: str = "threads") -> tuple[SessionState, list[str]]:
    """Run a graph; return the state of the session, and the contents of its files."""
    result = local_run.run(graph, directory=local_run.prepare_directory(directory), runner=runner, workers=2)
    folder = directory / "results"
    files = sorted(path for path in (directory / "files").rglob("*") if path.is_file()) + sorted(folder.iterdir())
    return result.status, [path.read_text() for path in files]


def launcher(folder: Path, text: str) -> str:
    """Write a program that stands for mpirun, and return its path."""
    program = folder / "start-ranks"
    program.write_text(f"#!{sys.executable}\n{text}")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize("runner", ["threads", "processes"])
def test_ranks_run_together(tmp_path: Path, runner: str) -> None:
    """Two jobs of three ranks: each rank writes its number and the number of ranks; the file has all parts in order."""
    status, contents = run(job(COMMAND, copies=2, launcher="none"), tmp_path / "run", runner)

    assert status is SessionState.FINISHED
    assert contents == ["0 of 3\n1 of 3\n2 of 3\n"] * 2


def test_ranks_wait_for_each_other(tmp_path: Path) -> None:
    """Each rank waits until all others have begun, so they run at the same time, also more of them than workers."""
    wait = f"mkdir -p {tmp_path}/begun; touch {tmp_path}/begun/$DROPFLOW_RANK; "
    wait += f"until [ $(ls {tmp_path}/begun | wc -l) = 70 ]; do sleep 0.05; done; {COMMAND}"
    status, contents = run(job(wait, ranks=70, launcher="none"), tmp_path / "run")

    assert status is SessionState.FINISHED
    assert contents[0].count("of 70") == 70


def test_a_launcher_starts_the_ranks(tmp_path: Path) -> None:
    """A launcher is called with the number of ranks; it gives each process its rank in a variable of its own."""
    program = launcher(
        tmp_path,
        "import os, subprocess, sys\n"
        "count = int(sys.argv[2])\n"
        "made = [subprocess.Popen(sys.argv[3:], env=dict(os.environ, PMI_RANK=str(one))) for one in range(count)]\n"
        "sys.exit(max(one.wait() for one in made))\n",
    )
    status, contents = run(job(COMMAND, launcher=f"{program} -np %n"), tmp_path / "run")

    assert status is SessionState.FINISHED
    assert contents == ["0 of 3\n1 of 3\n2 of 3\n"]


def test_mpirun_is_used_if_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a setting, the first of mpirun and mpiexec on the path starts the ranks."""
    program = launcher(
        tmp_path,
        "import os, subprocess, sys\n"
        "assert sys.argv[1] == '-n', sys.argv\n"
        "for one in range(int(sys.argv[2])):\n"
        "    subprocess.run(sys.argv[3:], env=dict(os.environ, OMPI_COMM_WORLD_RANK=str(one)), check=True)\n",
    )
    Path(program).rename(tmp_path / "mpirun")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    status, contents = run(job(COMMAND), tmp_path / "run")

    assert (status, contents) == (SessionState.FINISHED, ["0 of 3\n1 of 3\n2 of 3\n"])


def test_a_failed_rank_fails_the_job(tmp_path: Path) -> None:
    """If one rank ends with an error, the others are stopped, and the session fails with the status."""
    status, _ = run(job("[ $DROPFLOW_RANK = 1 ] && exit 7; sleep 60", launcher="none"), tmp_path / "run")

    assert status is SessionState.FAILED
    assert "it ended with status 7" in (tmp_path / "run" / "summary.json").read_text()


def test_a_launcher_that_is_missing_is_named(tmp_path: Path) -> None:
    """The failure names the program and what to do."""
    status, _ = run(job(COMMAND, launcher="no-such-mpirun -n %n"), tmp_path / "run")

    assert status is SessionState.FAILED
    assert "no-such-mpirun" in (tmp_path / "run" / "summary.json").read_text()
    assert MissingDependencyError.code in (tmp_path / "run" / "summary.json").read_text()


def test_ranks_are_placed_together_as_the_graph_says() -> None:
    """Each two ranks of a job, in order, are on one part, and a job is on as many parts as it can have."""
    graph = job(COMMAND, ranks=5, copies=2, ranks_per_node=2)
    planned = partition(graph, PartitionOptions(parts=3))
    row = next(
        number
        for number, template in enumerate(graph.templates)
        if template.axes[-1:] and template.axes[-1].kind == "mpi"
    )
    parts = planned.part[planned.template == row].reshape(2, 5)

    assert (parts[:, 0] == parts[:, 1]).all()
    assert (parts[:, 2] == parts[:, 3]).all()
    assert [len(set(one)) for one in parts.tolist()] == [3, 3]


def test_a_runner_of_one_attempt_refuses_jobs(tmp_path: Path) -> None:
    """Inline, the ranks could not run together: the session is refused before anything runs."""
    with pytest.raises(BadGraphError, match="3 ranks that run at once"):
        run(job(COMMAND), tmp_path / "run", "inline")
