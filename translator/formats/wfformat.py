"""Workflows of WfCommons (WfFormat 1.5) as physical graphs: tasks become applications, files become data drops.

Times, processors and memory are those of the recorded execution. A dependency without a common file becomes a data drop
without content. The name of a drop is the id of its task or file.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dropflow.failure import Problem, Severity
from dropflow.graph.build import from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Kind, Link, Template
from translator.problem_codes import problem

_SLEEP = "dlg.apps.simple.SleepApp"
_MEMORY = "dlg.data.drops.memory.InMemoryDROP"
_LARGEST_NUMBER = 1e300
"""Seconds, bytes or processors above which a number is a mistake."""
_MOST_PROBLEMS = 100
"""Problems of one file that are reported."""


def read_wfformat(document: Mapping[str, Any], name: str) -> tuple[PhysicalGraph | None, tuple[Problem, ...]]:
    """Return the graph of a workflow, and all its problems; None if there are errors.

    Parameters
    ----------
    document : mapping
        The parsed document.
    name : str
        Name of the graph if the document has none.
    """
    reading = _WorkflowReading()
    graph = reading.graph(document, name)
    is_wrong = any(finding.severity is Severity.ERROR for finding in reading.problems)
    return None if is_wrong else graph, tuple(reading.problems[:_MOST_PROBLEMS])


class _WorkflowReading:
    """One document being read."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._templates: list[Template] = []
        self._tasks: dict[str, int] = {}
        self._files: dict[str, int] = {}
        self._keys: set[str] = set()
        self._edges: dict[tuple[int, int], None] = {}
        self._written: defaultdict[int, set[int]] = defaultdict(set)
        self._read: defaultdict[int, set[int]] = defaultdict(set)

    def graph(self, document: Mapping[str, Any], name: str) -> PhysicalGraph:
        workflow = document["workflow"]
        specification = workflow.get("specification")
        if not isinstance(specification, Mapping):
            text = f"the workflow has no specification; its schemaVersion is {document.get('schemaVersion')!r}"
            self._complain("PG001", text, "/workflow", "convert it to WfFormat 1.5 with the tools of WfCommons")
            specification = {}
        where = "/workflow/specification"
        execution = workflow.get("execution")
        execution = execution if isinstance(execution, Mapping) else {}
        measured = {
            str(task.get("id")): task for _, task in self._records(execution.get("tasks"), "/workflow/execution/tasks")
        }
        tasks = list(self._records(specification.get("tasks"), f"{where}/tasks"))
        for place, task in tasks:
            self._add_task(task, measured.get(str(task.get("id")), {}), place)
        for place, file in self._records(specification.get("files"), f"{where}/files"):
            self._add_file(file, place)
        for place, task in tasks:
            self._connect(task, place)
        for place, task in tasks:  # after all files are known
            self._depend(task, place)
        title = document.get("name")
        label = title if isinstance(title, str) and title else name
        return self._made(label)

    def _made(self, name: str) -> PhysicalGraph:
        rows = np.arange(len(self._templates), dtype=np.int32)
        ends = np.array(list(self._edges), dtype=np.int32).reshape(-1, 2)
        return from_columns(
            name=name,
            prefix=name,
            templates=self._templates,
            links=[Link(source=source, target=target) for source, target in self._edges],
            template=rows,
            instance=np.zeros(len(rows), dtype=np.int32),
            source=ends[:, 0],
            target=ends[:, 1],
            link=np.arange(len(ends), dtype=np.int32),
        )

    def _records(self, given: Any, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if given is None:
            return
        if not isinstance(given, list):
            self._complain("PG001", "this is not a list", where, "write a list of objects")
            return
        for number, record in enumerate(given):
            if isinstance(record, Mapping) and isinstance(record.get("id"), str) and record["id"]:
                yield f"{where}/{number}", record
            else:
                self._complain("PG001", "this is not an object with an id", f"{where}/{number}", "give it an id")

    def _add_task(self, task: Mapping[str, Any], measured: Mapping[str, Any], place: str) -> None:
        identity = task["id"]
        if identity in self._tasks:
            self._complain("PG003", f"there are two tasks {identity!r}", f"{place}/id", "rename one of them")
            return
        seconds = self._number(measured, "runtimeInSeconds", 0.0, place)
        memory = self._number(measured, "memoryInBytes", 0.0, place)
        arguments = [Argument(name="sleep_time", value=seconds, type="Float", parameter_type="ApplicationArgument")]
        if memory:
            arguments.append(Argument(name="memory", value=memory, type="Float"))
        cores = max(math.ceil(self._number(measured, "coreCount", 1.0, place)), 1)
        self._tasks[identity] = self._add(
            identity, Kind.APP, _SLEEP, weight=seconds, cpus=cores, arguments=tuple(arguments)
        )

    def _add_file(self, file: Mapping[str, Any], place: str) -> None:
        identity = file["id"]
        if identity in self._files:
            self._complain("PG003", f"there are two files {identity!r}", f"{place}/id", "rename one of them")
            return
        volume = self._number(file, "sizeInBytes", 0.0, place)
        self._files[identity] = self._add(identity, Kind.DATA, _MEMORY, weight=volume)

    def _add(self, name: str, kind: Kind, component: str, **fields: Any) -> int:
        key, number = name, 1
        while key in self._keys:
            number += 1
            key = f"{name}-{number}"
        self._keys.add(key)
        self._templates.append(Template(key=key, name=name, kind=kind, component=component, **fields))
        return len(self._templates) - 1

    def _connect(self, task: Mapping[str, Any], place: str) -> None:
        app = self._tasks[task["id"]]
        written = self._names(task, "outputFiles", place)
        for key, names in (("inputFiles", self._names(task, "inputFiles", place)), ("outputFiles", written)):
            for name in names:
                if name not in self._files:
                    text = f"task {task['id']!r} names the file {name!r}, which is not listed: its size counts as 0"
                    self._complain("PG002", text, f"{place}/{key}", "add it to files", Severity.WARNING)
                    self._files[name] = self._add(name, Kind.DATA, _MEMORY, weight=0.0)
                file = self._files[name]
                if key == "outputFiles":
                    self._edges[app, file] = None
                    self._written[app].add(file)
                elif name not in written:  # a file that a task changes in place does not make it wait for itself
                    self._edges[file, app] = None
                    self._read[app].add(file)

    def _depend(self, task: Mapping[str, Any], place: str) -> None:
        """Add a data drop without content for each dependency that no file expresses."""
        pairs = [(name, task["id"], "parents") for name in self._names(task, "parents", place)]
        pairs += [(task["id"], name, "children") for name in self._names(task, "children", place)]
        for before, after, key in pairs:
            if before not in self._tasks or after not in self._tasks:
                missing = before if before not in self._tasks else after
                text = f"task {task['id']!r} names the task {missing!r}, which does not exist"
                self._complain("PG002", text, f"{place}/{key}", "add the task, or remove its id here")
                continue
            first, second = self._tasks[before], self._tasks[after]
            if first == second:
                self._complain("PG001", f"task {before!r} depends on itself", f"{place}/{key}", "remove its id here")
            elif not self._written[first] & self._read[second]:
                name = f"{before} -> {after}"
                event = self._files[name] = self._add(name, Kind.DATA, _MEMORY, weight=0.0, artificial=True)
                self._edges[first, event] = None
                self._edges[event, second] = None
                self._written[first].add(event)
                self._read[second].add(event)

    def _names(self, task: Mapping[str, Any], key: str, place: str) -> list[str]:
        given = task.get(key) or []
        if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
            self._complain("PG001", f"{key} is not a list of ids", f"{place}/{key}", "write a list of texts")
            return []
        return list(dict.fromkeys(given))

    def _number(self, record: Mapping[str, Any], key: str, default: float, place: str) -> float:
        value = record.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST_NUMBER:
            self._complain(
                "PG001", f"{key} of {record.get('id')!r} is {value!r:.60}", place, "give a number, 0 or more"
            )
            return default
        return float(value)

    def _complain(self, code: str, text: str, where: str, hint: str, severity: Severity | None = None) -> None:
        self.problems.append(problem(code, text, where=where, hint=hint, severity=severity))
