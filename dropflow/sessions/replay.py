"""Replay of one application of a session, on this machine and outside of the session, with the inputs that it had.

A replay is a separate run, in its own directory, of a small part of the graph: the application, its inputs, and its
outputs. Inputs that are gone are made again first, by the applications upstream of it. Nothing is written outside of
the directory of the replay.
"""

import contextlib
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.apps.app_interface import App
from dropflow.apps.attempt import AttemptContext
from dropflow.apps.failed_inputs import is_secret
from dropflow.apps.formats import copy_content
from dropflow.apps.runtime_environment import RuntimeEnvironment
from dropflow.data.registry import is_outside_files
from dropflow.data.storage_errors import storage_errors
from dropflow.data.survival import surviving_contents
from dropflow.errors import ConflictError, ExportError, UsageError
from dropflow.execution.content_location import ContentRecord, Handle
from dropflow.execution.decisions.continuation import Continuation
from dropflow.execution.decisions.events import KnownStates
from dropflow.execution.statistics import SessionResult
from dropflow.files import GRAPH_FILE, SessionLock, refuse_other_directory
from dropflow.formatting import few, format_size, plural
from dropflow.graph.codec import save
from dropflow.graph.components import fold
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import subgraph
from dropflow.graph.templates import Argument, Kind, Template
from dropflow.graph.text_ids import find_drop, oid
from dropflow.runners.executor import RunApp
from dropflow.session_options import RunOptions
from dropflow.sessions.local_run import RunHooks, execute, refuse_unusable
from dropflow.sessions.stopped import StoppedRun
from dropflow.states import DropState

Contents = Callable[[Sequence[int]], Mapping[int, Handle]]
"""Returns the contents of these drops that still exist."""

_PLACES = frozenset(map(fold, ("filepath", "dirname", "dirpath")))
"""Fields with the place where a data drop is written."""
_FIRST_VARIABLE = re.compile(r"[/~]*\$\{?(\w+)\}?")


@dataclass(frozen=True)
class Replay:
    """An application that can run again.

    Attributes
    ----------
    graph : PhysicalGraph
        The application, the applications that make lost inputs again, and the data of all of them.
    drop : int
        The row of the application in `graph`.
    states : uint8 array, shape (drops of graph,)
        `DropState` with which each drop begins.
    contents : mapping of int to Handle
        The inputs that still exist, by row in `graph`.
    before : mapping of int to ContentRecord
        Known records of the outputs of the application in the session, by row in `graph`.
    """

    graph: PhysicalGraph
    drop: int
    states: npt.NDArray[np.uint8]
    contents: Mapping[int, Handle]
    before: Mapping[int, ContentRecord]

    @property
    def oid(self) -> str:
        """Text id of the application."""
        return oid(self.graph, self.drop)

    @property
    def template(self) -> Template:
        """The node of the application."""
        own: Template = self.graph.templates[self.graph.template[self.drop]]
        return own

    @property
    def inputs(self) -> list[int]:
        """Rows of the inputs of the application."""
        return self.graph.predecessors.of(self.drop)

    @property
    def outputs(self) -> list[int]:
        """Rows of the outputs of the application."""
        return self.graph.successors.of(self.drop)

    @property
    def made_again(self) -> int:
        """Number of applications that run before it, because inputs are lost."""
        is_app = self.graph.kinds[self.graph.template] == np.uint8(Kind.APP)
        return int((is_app & (self.states == DropState.INITIALIZED)).sum()) - 1

    def with_code(self, source: str) -> "Replay":
        """Return the replay with another source of the function.

        Raises
        ------
        UsageError
            The graph does not contain the source of this application.
        """
        row = int(self.graph.template[self.drop])
        templates = list(self.graph.templates)
        templates[row] = self.template.with_value("func_code", source)
        return replace(self, graph=replace(self.graph, templates=tuple(templates)))

    @property
    def code(self) -> str:
        """Source of the function in the graph.

        Raises
        ------
        UsageError
            The graph does not contain it.
        """
        source = self.template.value("func_code")
        if not isinstance(source, str) or not source:
            raise UsageError(
                f"the graph has no source of {self.template.name} that could be edited",
                hint="edit the module of its function, or its command in the graph; a replay reads modules anew",
            )
        return source

    def with_copies(self, directory: Path, most: int, *, has_secrets: bool = False) -> "Replay":
        """Copy inputs that are files or directories into `directory`, so that a colleague needs nothing else.

        Parameters
        ----------
        directory : Path
            Directory of the replay.
        most : int
            Most bytes of inputs that may be copied.
        has_secrets : bool
            Whether it is known that inputs or parameters are secret.

        Raises
        ------
        ExportError
            They have more than `most` bytes, or a value or content is secret by its name or by its component.
        StorageError
            They cannot be copied.
        """
        secrets = () if has_secrets else tuple(self._secrets())
        if secrets:
            raise ExportError(
                f"{self.oid} is not exported, because it has secrets: {few(secrets)}",
                hint="take them out of the graph, or give --with-secrets if the other person may have them",
            )
        refuse_large(self.oid, sum(content.size for content in self.contents.values()), most)
        copies = {}
        for row, content in self.contents.items():
            if content.kind in ("file", "directory", "shm") and not Path(content.location).is_relative_to(directory):
                target = directory / "inputs" / str(row) / Path(content.location).name
                with storage_errors("copy an input to", str(target)):
                    target.parent.mkdir(parents=True, exist_ok=True)
                copy_content(Path(content.location), target)
                kind = "file" if content.kind == "shm" else content.kind
                copies[row] = msgspec.structs.replace(content, kind=kind, location=str(target))
        return replace(self, contents={**self.contents, **copies})

    def _secrets(self) -> Iterator[str]:
        """Yield the secrets that an export would contain. The graph of a replay has all nodes with their parameters."""
        graph = self.graph
        ports: dict[int, set[str]] = {}
        for link in graph.links:
            ports.setdefault(link.source, set()).add(link.target_port)
        for template in graph.templates:
            yield from _secret_values(template)
        for row in np.unique(graph.template).tolist():
            template = graph.templates[row]
            if template.kind is Kind.APP:
                needs = RuntimeEnvironment.of(template).needs
                yield from (f"{need} of {template.name}" for need in needs if need.startswith("secret:"))
            elif any(map(is_secret, (template.name, *ports.get(row, ())))):
                yield f"content of {template.name!r}"

    def run(self, directory: Path, around: RunApp | None = None, *, report_locals: bool = False) -> SessionResult:
        """Run the application, after the applications that make its inputs again.

        Parameters
        ----------
        directory : Path
            An empty directory; it becomes the directory of a run.
        around : callable, optional
            Runs the application with its context in place of `App.run`, for debuggers.
        report_locals : bool
            Whether failures have the local variables of the function that raised.

        Raises
        ------
        BadGraphError
            A component is unknown here, or a parameter cannot be used.
        StorageError
            The directory cannot be written.
        """
        refuse_unusable(self.graph, "inline")
        failed = np.flatnonzero(self.states == DropState.ERROR).tolist()
        known = KnownStates(
            states=self.states.tobytes(), causes={row: row for row in failed}, reason=f"{self.oid} is replayed"
        )
        target = self.drop

        def run_app(app: App, context: AttemptContext) -> None:
            if around is not None and context.task.drop == target:
                around(app, context)
            else:
                app.run(context)

        files = directory / "files"
        with SessionLock(directory):
            save(self.graph, directory / GRAPH_FILE)
            with storage_errors("make", files):
                files.mkdir(exist_ok=True)
            with contextlib.chdir(files):
                return execute(
                    self.graph,
                    directory,
                    RunOptions(runner="inline", report_locals=report_locals),
                    RunHooks(run_app=run_app),
                    continuation=Continuation(known=known, contents=self.contents, failures={}),
                )


def _secret_values(template: Template) -> Iterator[str]:
    """Yield the parameters and the variables of a node that have a value and the name of a secret."""
    is_app = template.kind is Kind.APP
    values = {argument.name: argument.value for argument in template.arguments}
    if not is_app:
        values.pop("Key", None)  # the name of an object in a bucket
    variables = RuntimeEnvironment.of(template).variables if is_app else {}
    for what, some in (("parameter", values), ("variable", variables)):
        for name, value in some.items():
            if is_secret(name) and isinstance(value, str) and value and not value.startswith("secret:"):
                yield f"{what} {name!r} of {template.name}"


def refuse_large(name: str, size: int, most: int) -> None:
    """Raise if the inputs of a drop have too many bytes to be exported.

    Raises
    ------
    ExportError
        They have more than `most` bytes.
    """
    if size > most:
        raise ExportError(
            f"{name} is not exported: its inputs have {format_size(size)}, and {format_size(most)} are allowed",
            hint=f"allow more with --most {size}",
        )


def replay_of_run(directory: Path, drop: str) -> Replay:
    """Return the replay of a drop of a run on this machine, which has ended.

    Parameters
    ----------
    directory : Path
        Absolute path of its session directory.
    drop : str
        Text id of an application, the end of such an id, or a name that only one drop has.

    Raises
    ------
    NotFoundError, AmbiguousError
        There is no run in the directory, or no such drop, or there are several.
    ConflictError
        A process is at work in the directory, or the drop has not begun.
    UsageError
        The drop is data, or writes to a store.
    BadFileError
        The graph or the journal is damaged.
    """
    refuse_other_directory(directory)
    with SessionLock(directory):
        run = StoppedRun.read(directory)
        states = run.settled
        nothing = run.unwritten

        def contents(rows: Sequence[int]) -> Mapping[int, Handle]:
            wanted = set(rows)
            records = {row: record for row, record in run.records.items() if row in wanted}
            empty = {row: Handle(kind="null") for row in wanted if nothing[row]}
            return {**surviving_contents(records, directory), **empty}

        return replay_of_states(run.graph, find_drop(run.graph, drop, states), states, contents, run.records)


def replay_of_states(
    graph: PhysicalGraph,
    drop: int,
    states: npt.NDArray[np.uint8],
    contents: Contents,
    records: Mapping[int, ContentRecord],
) -> Replay:
    """Return the replay of a drop of a session.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph of the session.
    drop : int
        The row of an application.
    states : uint8 array, shape (drops,)
        `DropState` of each drop at the end of the session.
    contents : callable
        Finds contents that still exist.
    records : mapping of int to ContentRecord
        Known records of committed contents, by drop.

    Raises
    ------
    UsageError, ConflictError
        See `replay_of_run`.
    """
    name = oid(graph, drop)
    is_app = graph.kinds[graph.template] == np.uint8(Kind.APP)
    if not is_app[drop]:
        writers = [oid(graph, writer) for writer in graph.predecessors.of(drop)]
        raise UsageError(f"{name} is data, and nothing of it runs", hint=f"replay its producer: {', '.join(writers)}")
    unsettled = [data for data in graph.predecessors.of(drop) if states[data] <= DropState.WRITING]
    if unsettled:
        raise ConflictError(
            f"{name} has not begun: {plural(len(unsettled), 'input')} of it, such as {oid(graph, unsettled[0])}, "
            f"{'is' if len(unsettled) == 1 else 'are'} not there",
            hint="replay the drop that failed or was stopped before it: see 'dropflow explain'",
        )
    apps, there, again = _needed(graph, drop, states, contents)
    written = {output for app in apps for output in graph.successors.of(app)}
    rows = np.array(sorted({*apps, *written, *again, *(data for app in apps for data in graph.predecessors.of(app))}))
    templates = {int(graph.template[row]) for row in written}
    part = _inside(subgraph(graph, rows.astype(np.int32)), templates)
    part = _kept(part, {int(graph.template[row]) for row in again.intersection(graph.predecessors.of(drop))})
    begun = states[rows].copy()
    begun[np.isin(rows, [*apps, *written, *again])] = DropState.INITIALIZED
    local = {int(row): at for at, row in enumerate(rows)}
    return Replay(
        graph=part,
        drop=local[drop],
        states=begun,
        contents={local[row]: content for row, content in there.items() if row not in written},
        before={local[row]: records[row] for row in graph.successors.of(drop) if row in records},
    )


def _needed(
    graph: PhysicalGraph, drop: int, states: npt.NDArray[np.uint8], contents: Contents
) -> tuple[set[int], dict[int, Handle], set[int]]:
    """Return the applications that run, the inputs that exist, and the data that are made or read again."""
    apps, there, again = {drop}, dict[int, Handle](), set[int]()
    wave = graph.predecessors.of(drop)
    while wave:
        completed = [row for row in wave if states[row] == DropState.COMPLETED]
        existing = contents(completed)
        there |= existing
        lost = [row for row in completed if row not in existing]
        again |= {*lost}
        producers = {app for row in lost for app in graph.predecessors.of(row)} - apps
        apps |= producers
        wave = sorted({row for app in producers for row in graph.predecessors.of(app)} - there.keys() - again)
    return apps, there, again


def _inside(graph: PhysicalGraph, written: set[int]) -> PhysicalGraph:
    """Return the graph with the files of these data nodes below the directory of the replay.

    Raises
    ------
    UsageError
        A node is written to a store.
    """
    templates = list(graph.templates)
    for row in written:
        template = templates[row]
        if is_outside_files(template):
            raise UsageError(
                f"{template.name} is written to a store or database, and a replay writes nothing outside of its "
                "directory",
                hint="give that node a file in a copy of the graph, and run this one",
            )
        arguments = tuple(_relative(argument) for argument in template.arguments)
        templates[row] = msgspec.structs.replace(template, arguments=arguments)
    return replace(graph, templates=tuple(templates))


def _kept(graph: PhysicalGraph, inputs: set[int]) -> PhysicalGraph:
    """Return the graph with the contents of these data nodes kept, to look at them and to replay the replay."""
    templates = list(graph.templates)
    for row in inputs:
        templates[row] = msgspec.structs.replace(templates[row], persist=True)
    return replace(graph, templates=tuple(templates))


def _relative(argument: Argument) -> Argument:
    value: Any = argument.value.strip() if isinstance(argument.value, str) else ""
    if fold(argument.name) not in _PLACES or not value.startswith(("/", "~", "$")):
        return argument
    below = _FIRST_VARIABLE.sub(r"\1", value, count=1).lstrip("/~$")
    if ".." in below.split("/"):  # it would leave the directory of the replay
        below = posixpath.normpath(f"/{below}").lstrip("/")
    return msgspec.structs.replace(argument, value=below)
