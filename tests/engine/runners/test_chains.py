"""Chains of applications in real worker processes: one worker, faults of the right application, limits of each."""

from pathlib import Path

import pytest

from dropflow.engine.journal import replay
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph, without_fusion
from dropflow.graph.templates import Argument
from dropflow.sessions import local_run
from dropflow.states import DropState, SessionState
from dropflow.testing.drawing import row
from dropflow.times.octets import TIMES_FILE, read_times
from tests.engine.runners.test_worker_faults import contents

pytestmark = pytest.mark.slow

_MEMORY = "dlg.data.drops.memory.InMemoryDROP"
_STEP = "import os, time, signal\ndef f(x=b''):\n    {}\n    return bytes(x) + b'%d ' % os.getpid()"
_DIE_ONCE = "if not os.path.exists('died'): open('died', 'w').close(); os.kill(os.getpid(), signal.SIGKILL)"


def drawn(**fields: tuple[str, float]) -> PhysicalGraph:
    """Return chains of four functions that append their process to what they get.

    Parameters
    ----------
    **fields : tuple of str and float
        By the name of an application: what it does first, and how long an attempt may take.
    """
    builder = GraphBuilder("drawing")
    for chain in ("A", "B", "C"):
        for number in range(4):
            name, (first, limit) = f"{chain}{number}", fields.get(f"{chain}{number}", ("pass", 0.0))
            arguments = (
                Argument(name="func_name", value="f"),
                Argument(name="func_code", value=_STEP.format(first)),
                Argument(name="timeout", value=limit),
                Argument(name="x", usage="InputPort", encoding="binary"),
                Argument(name="y", usage="OutputPort", encoding="binary"),
            )
            builder.app(name, component="dlg.apps.pyfunc.PyFuncApp", category="PyFuncApp", arguments=arguments)
            builder.data(f"d{name}", component=_MEMORY, category="Memory")
            builder.connect(name, f"d{name}", source_port="y")
            if number:
                builder.connect(f"d{chain}{number - 1}", name, target_port="x")
    return builder.build()


def test_chains_in_worker_processes(tmp_path: Path) -> None:
    """A chain stays in one worker; each drop has its time and state; faults and limits are those of one application.

    The worker of the second chain dies in its third application, which then runs alone; so the two before it, whose
    results were not sent, run again. In the third chain an application takes longer than it may.
    """
    graph = drawn(B2=(_DIE_ONCE, 0.0), C1=("time.sleep(60)", 0.5))
    result = local_run.run(graph, directory=tmp_path / "fused", workers=2, check=True)
    processes = {name.split("_")[1]: body.split() for name, body in contents(tmp_path / "fused").items()}
    drops = replay(graph, tmp_path / "fused" / "journal.dfj").core.drops
    times = read_times(tmp_path / "fused" / TIMES_FILE)

    assert result.status is SessionState.FAILED
    assert [(one.drop, one.code) for one in result.failures] == [("drawing_C1_0", "DF110")]
    assert len(set(processes["dA3"])) == 1
    assert len(processes["dB3"]) == 4
    assert result.infrastructure_faults == 1
    assert drops.faults == {row(graph, "B2"): 1}
    states = [drops.state(row(graph, f"C{number}")) for number in range(4)]
    assert states == [DropState.COMPLETED, *[DropState.ERROR] * 3]
    done = times[times["attempt"] > 0]
    assert {row(graph, f"A{number}") for number in range(4)} <= set(done["drop"].tolist())
    assert (times["queued"] >= 0).all()


def test_the_same_without_chains(tmp_path: Path) -> None:
    """A graph with the note against chains has the same results."""
    graph = drawn(B2=(_DIE_ONCE, 0.0))
    result = local_run.run(without_fusion(graph), directory=tmp_path / "apart", workers=2, check=True)

    assert result.status is SessionState.FINISHED
    assert [len(body.split()) for body in contents(tmp_path / "apart").values()] == [4, 4, 4]
