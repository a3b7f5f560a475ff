"""Tasks from rows: what an attempt of a drop has as inputs and outputs, with the text ids that a border needs."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from dropflow.engine.api import Handle, Input, Output, Task
from dropflow.engine.core import Core
from dropflow.engine.events import Run
from dropflow.graph.names import index_of, oids
from dropflow.graph.physical import PhysicalGraph

__all__ = ["TaskBuilder"]


class TaskBuilder:
    """Builds the tasks of one graph, a batch at a time: naming many drops at once is far cheaper than one by one."""

    def __init__(self, graph: PhysicalGraph) -> None:
        self._graph = graph
        self._template = np.ascontiguousarray(graph.template).data
        self._before_ptr = np.ascontiguousarray(graph.predecessors.ptr).data
        self._before = np.ascontiguousarray(graph.predecessors.neighbour).data
        self._before_link = np.ascontiguousarray(graph.predecessors.link).data
        self._after_ptr = np.ascontiguousarray(graph.successors.ptr).data
        self._after = np.ascontiguousarray(graph.successors.neighbour).data
        self._after_link = np.ascontiguousarray(graph.successors.link).data
        self._is_app = [bool(template.kind) for template in graph.templates]

    def is_shared(self, drop: int) -> bool:
        """Whether a data drop has several producers, each of which writes a part."""
        return self._before_ptr[drop + 1] - self._before_ptr[drop] > 1

    def build(self, batch: Sequence[Run], core: Core, handles: Mapping[int, Handle]) -> list[Task]:
        """The tasks of a batch, in its order, with the inputs as they are now."""
        before, after = self._before_ptr, self._after_ptr
        spans = []
        rows: list[int] = []
        for run in batch:
            drop = run.drop
            rows.append(drop)
            inputs = outputs = 0
            if self._is_app[self._template[drop]]:
                inputs, outputs = before[drop + 1] - before[drop], after[drop + 1] - after[drop]
                rows += self._before[before[drop] : before[drop + 1]]
                rows += self._after[after[drop] : after[drop + 1]]
            spans.append((run, inputs, outputs))
        names = oids(self._graph, np.array(rows, dtype=np.int32))
        cuts = [0]
        for _, inputs, outputs in spans:
            cuts.append(cuts[-1] + 1 + inputs + outputs)
        return [
            self._task(run, names[start:stop], inputs, core, handles)
            for (run, inputs, _), (start, stop) in zip(spans, pairwise(cuts), strict=True)
        ]

    def _task(self, run: Run, names: Sequence[str], inputs: int, core: Core, handles: Mapping[int, Handle]) -> Task:
        drop = run.drop
        template = self._template
        first_input, first_output = self._before_ptr[drop], self._after_ptr[drop]
        outputs = len(names) - 1 - inputs
        return Task(
            drop,
            run.attempt,
            template[drop],
            names[0],
            index_of(self._graph, drop),
            tuple(
                Input(data, names[1 + slot], template[data], link, core.state(data), handles.get(data))
                for slot, (data, link) in enumerate(
                    zip(
                        self._before[first_input : first_input + inputs],
                        self._before_link[first_input : first_input + inputs],
                        strict=True,
                    )
                )
            ),
            tuple(
                Output(data, names[1 + inputs + slot], template[data], link, self.is_shared(data))
                for slot, (data, link) in enumerate(
                    zip(
                        self._after[first_output : first_output + outputs],
                        self._after_link[first_output : first_output + outputs],
                        strict=True,
                    )
                )
            ),
        )
