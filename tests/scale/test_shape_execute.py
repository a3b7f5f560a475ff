"""The cost of an attempt does not grow with the number of attempts."""

import gc
import time
from pathlib import Path

import pytest

from dropflow.apps.execute import LocalExecutor
from dropflow.engine.api import ExecutorSpec, Handle, Input, Output, Task
from dropflow.graph.templates import Kind, Link, Template
from dropflow.states import DropState

pytestmark = pytest.mark.slow

SIZES = (1_000, 10_000, 50_000)
FACTOR = 4.0

_TEMPLATES = (
    Template(key="m", name="m", kind=Kind.DATA, component="dlg.data.drops.memory.InMemoryDROP"),
    Template(key="a", name="a", kind=Kind.APP, component="dlg.apps.simple.NullBarrierApp"),
)
_LINKS = (Link(source=0, target=1), Link(source=1, target=0))


def _tasks(count: int) -> list[Task]:
    given = Handle()
    return [
        Task(
            drop,
            1,
            1,
            f"g_a_0-{drop}",
            (drop,),
            (Input(drop, f"g_m_0-{drop}", 0, 0, DropState.COMPLETED, given),),
            (Output(drop, f"g_m_0-{drop}", 0, 1),),
        )
        for drop in range(count)
    ]


def _seconds(executor: LocalExecutor, tasks: list[Task]) -> float:
    best = float("inf")
    for _ in range(3 if len(tasks) < SIZES[-1] else 1):
        gc.collect()
        started = time.thread_time()
        for task in tasks:
            executor.execute(task)
        best = min(best, time.thread_time() - started)
    return best / len(tasks)


def test_attempts_cost_the_same_at_every_size(tmp_path: Path) -> None:
    """The cost of an empty attempt is equal for one thousand and fifty thousand attempts, within a factor of four."""
    executor = LocalExecutor(ExecutorSpec(session="s", directory=str(tmp_path), templates=_TEMPLATES, links=_LINKS))
    try:
        executor.execute(_tasks(1)[0])
        costs = [_seconds(executor, _tasks(size)) for size in SIZES]
    finally:
        executor.close()

    assert max(costs) < FACTOR * min(costs)
    assert list((tmp_path / "logs").iterdir()) == []
