"""A worker of an engine is killed in the middle of any graph, so that exactly one infrastructure fault is counted.

The graph gets one more application, which ends only when it is told. The worker that runs it is killed while the rest
of the graph runs. If the application had others beside it in its batch, no fault is counted, and it is repeated alone:
then it is killed once more.
"""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil

from dropflow.engine.session import Session
from dropflow.graph.build import GraphBuilder, from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from tests.e2e.cluster import until

__all__ = ["LostWorker", "let_go", "with_held_step"]

_HELD = "[ -e let-go ] && exit 0; echo $$ > new; mv new began; while [ ! -e let-go ]; do sleep 0.1; done"


def with_held_step(graph: PhysicalGraph) -> PhysicalGraph:
    """Return a graph with one more application, which waits for a file, and its output. Nothing else depends on it."""
    builder = GraphBuilder("held")
    argument = Argument(name="command", value=_HELD, parameter_type="ComponentParameter")
    builder.app("held", component="dlg.apps.bash_shell_app.BashShellApp", category="BashShellApp", arguments=[argument])
    held = builder.data("end").connect("held", "end").build()
    drops, templates = graph.drops, len(graph.templates)
    links = [
        type(link)(source=link.source + templates, target=link.target + templates, source_port="", target_port="")
        for link in held.links
    ]
    sources = [np.repeat(np.arange(one.drops), np.diff(one.successors.ptr)) for one in (graph, held)]
    return from_columns(
        name=graph.name,
        prefix=graph.prefix,
        templates=[*graph.templates, *held.templates],
        links=[*graph.links, *links],
        template=np.append(graph.template, held.template + templates),
        instance=np.append(graph.instance, held.instance),
        source=np.append(sources[0], sources[1] + drops),
        target=np.append(graph.successors.neighbour, held.successors.neighbour + drops),
        link=np.append(graph.successors.link, held.successors.link + len(graph.links)),
        meta=graph.meta,
    )


def let_go(directory: Path) -> None:
    """Have the application end at once, in a run without a loss."""
    (directory / "files" / "let-go").touch()


class LostWorker:
    """Kills the worker that runs the application, until a fault is counted; then the application may end.

    Parameters
    ----------
    directory : Path
        Of the session.
    worker_of : callable
        Returns the process of the engine's worker among those that started the application.
    """

    def __init__(self, directory: Path, worker_of: Callable[[list[psutil.Process]], psutil.Process]) -> None:
        self._files = directory / "files"
        self._worker_of = worker_of
        self.steps: list[int] = []
        """Processes of the application whose workers were killed."""

    def watch(self, session: Session) -> None:
        """Kill in another thread, as the session goes on."""
        threading.Thread(target=self._lose, args=[session], daemon=True).start()

    def _lose(self, session: Session) -> None:
        try:
            while self._begins_again(session):
                self.steps.append(self._step())
                worker = self._worker_of(psutil.Process(self.steps[-1]).parents())
                os.kill(worker.pid, signal.SIGKILL)
        finally:
            let_go(self._files.parent)

    def _begins_again(self, session: Session) -> bool:
        """Wait for the first or next attempt; return whether its worker must be killed, as no fault is counted yet."""
        # A fault is counted before the attempt is repeated.
        assert until(lambda: self._step() not in (0, *self.steps[-1:]), 60)
        return session.failure_table.fault_count == 0

    def _step(self) -> int:
        began = self._files / "began"
        return int(began.read_text()) if began.exists() else 0
