"""Building tasks: the inputs and outputs of an attempt, with their text ids."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from dropflow.engine.api import Handle, Input, OpenStreams, Output, Task
from dropflow.engine.core import Core
from dropflow.engine.events import Run
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import index_of, oids

__all__ = [
    "TaskBuilder",
    "attempt_priority",
]


# The priority of each attempt, from that of the drops.


def attempt_priority(graph: PhysicalGraph) -> IntColumn | None:
    """Return the priority of the attempt of each drop.

    That of an application is its own. Data without producers are attempted, too: they are as urgent as the most urgent
    of their consumers, which otherwise would wait for all applications that are ready.

    Returns
    -------
    int32 array, shape (drops,), or None
        Higher ones start first. None if the graph has no priorities.
    """
    if graph.priority is None:
        return None
    before, after = graph.predecessors, graph.successors
    is_data = graph.kinds[graph.template] == np.uint8(Kind.DATA)
    consumers = np.diff(after.ptr)
    is_root = is_data & (np.diff(before.ptr) == 0) & (consumers > 0)
    column = graph.priority.copy()
    if is_root.any():
        urgent = graph.priority[after.neighbour[np.repeat(is_root, consumers)]]
        first = np.cumsum(consumers[is_root]) - consumers[is_root]
        column[is_root] = np.maximum.reduceat(urgent, first)
    return column


_WORTH_KEEPING = 4096
"""Bytes of a content from which it costs more to send it again than to keep it."""
_READERS = 4
"""Attempts that read a content from which worker processes keep it. Fewer would hold memory for little."""


class TaskBuilder:
    """Builds the tasks of one graph in batches: computing the ids of many drops together is much cheaper.

    Parameters
    ----------
    graph : PhysicalGraph
        What is executed.
    streams : collection of int
        Links whose data can be read by their consumers while it is written.
    kept : bytes
        Which contents outlive the session, from `dropflow.engine.content_table.kept_drops`.
    """

    def __init__(self, graph: PhysicalGraph, streams: Iterable[int], kept: bytes) -> None:
        self._graph = graph
        self._kept = kept
        self._template = np.ascontiguousarray(graph.template).data
        self._instance = np.ascontiguousarray(graph.instance).data
        self._before_ptr = np.ascontiguousarray(graph.predecessors.ptr).data
        self._before = np.ascontiguousarray(graph.predecessors.neighbour).data
        self._before_link = np.ascontiguousarray(graph.predecessors.link).data
        self._after_ptr = np.ascontiguousarray(graph.successors.ptr).data
        self._after = np.ascontiguousarray(graph.successors.neighbour).data
        self._after_link = np.ascontiguousarray(graph.successors.link).data
        self._is_app = [bool(template.kind) for template in graph.templates]
        streamed = {graph.links[link].source for link in streams}
        self._is_streamed = [row in streamed for row in range(len(graph.templates))]
        priority = attempt_priority(graph)
        self.priority = None if priority is None else np.ascontiguousarray(priority).data
        """Priority of the attempts of each drop; None if the graph has none."""
        self._is_line = [len(template.shape) == 1 for template in graph.templates]

    def is_shared(self, drop: int) -> bool:
        """Return whether a data drop has several producers that each write a part."""
        return self._before_ptr[drop + 1] - self._before_ptr[drop] > 1

    def build_chains(
        self,
        batch: Sequence[Run],
        chains: Sequence[Sequence[Run]],
        core: Core,
        contents: Mapping[int, Handle],
        streams: OpenStreams,
    ) -> list[Task]:
        """Return the tasks of a batch, each with those of the attempts that follow it."""
        if not any(chains):
            return self.build(batch, core, contents, streams)
        tasks = iter(self.build([*batch, *(run for chain in chains for run in chain)], core, contents, streams))
        first = [next(tasks) for _ in batch]
        change = msgspec.structs.replace
        return [
            change(task, then=tuple([change(next(tasks), follows=True) for _ in chain])) if chain else task
            for task, chain in zip(first, chains, strict=True)
        ]

    def build(
        self, batch: Sequence[Run], core: Core, contents: Mapping[int, Handle], streams: OpenStreams
    ) -> list[Task]:
        """Return the tasks of a batch, in its order, with the inputs as they are now: contents, or open streams."""

        def content_or_stream(drop: int) -> Handle | None:
            return contents.get(drop) or streams.find(drop, core.streaming.open_attempt(drop))

        def handle(app: int) -> Callable[[int], Handle | None]:
            # Only an attempt that runs ahead is aborted when an open drop is withdrawn: others read complete inputs.
            return content_or_stream if core.streaming.is_ahead(app) else contents.get

        before, after = self._before_ptr, self._after_ptr
        inputs: list[Sequence[int]] = []
        outputs: list[Sequence[int]] = []
        rows: list[int] = []
        for run in batch:
            drop = run.drop
            rows.append(drop)
            if self._is_app[self._template[drop]]:
                inputs.append(self._before[before[drop] : before[drop + 1]].tolist())
                outputs.append(self._after[after[drop] : after[drop + 1]].tolist())
                rows += inputs[-1]
                rows += outputs[-1]
            else:
                inputs.append(())
                outputs.append(())
        names = iter(oids(self._graph, np.array(rows, dtype=np.int32)))
        suspects, priority = core.drops.faults, self.priority
        return [
            Task(
                run.drop,
                run.attempt,
                self._template[run.drop],
                next(names),
                self._index(run.drop),
                self._inputs(run.drop, taken, names, core, handle(run.drop)) if taken else (),
                self._outputs(run.drop, given, names) if given else (),
                core.streaming.is_ahead(run.drop),
                run.drop in suspects,
                0 if priority is None else priority[run.drop],
            )
            for run, taken, given in zip(batch, inputs, outputs, strict=True)
        ]

    def _index(self, drop: int) -> tuple[int, ...]:
        return (self._instance[drop],) if self._is_line[self._template[drop]] else index_of(self._graph, drop)

    def _inputs(
        self,
        app: int,
        rows: Sequence[int],
        names: Iterator[str],
        core: Core,
        handle: Callable[[int], Handle | None],
    ) -> tuple[Input, ...]:
        template, state, is_reread = self._template, core.drops.state, self._is_reread
        first = self._before_ptr[app]
        return tuple(
            [
                Input(
                    row, next(names), template[row], link, state(row), content := handle(row), is_reread(row, content)
                )
                for row, link in zip(rows, self._before_link[first : first + len(rows)], strict=True)
            ]
        )

    def _is_reread(self, drop: int, content: Handle | None) -> bool:
        if content is None or content.size < _WORTH_KEEPING:
            return False
        return self._after_ptr[drop + 1] - self._after_ptr[drop] >= _READERS

    def _outputs(self, app: int, rows: Sequence[int], names: Iterator[str]) -> tuple[Output, ...]:
        template, is_streamed, kept = self._template, self._is_streamed, self._kept
        first = self._after_ptr[app]
        return tuple(
            [
                Output(
                    row,
                    next(names),
                    template[row],
                    link,
                    self.is_shared(row),
                    is_streamed[template[row]],
                    bool(kept[row]),
                )
                for row, link in zip(rows, self._after_link[first : first + len(rows)], strict=True)
            ]
        )
