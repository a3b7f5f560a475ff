"""The functions of the Python interface: translate, check and run a graph. `dropflow` exports them.

They accept a graph in any form: the path of a file, its bytes, the decoded JSON of a file, a `LogicalGraph` or a
`PhysicalGraph`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Unpack

import msgspec

from dropflow.apps.encodings import decode, holds_values
from dropflow.data.read import open_content, read, view
from dropflow.errors import BadFileError, NotFoundError
from dropflow.execution.content_location import Handle
from dropflow.execution.session import Session
from dropflow.execution.statistics import FailureReport
from dropflow.failure import Problem
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import find_drop, oid
from dropflow.session_options import RunKeywords, run_options
from dropflow.sessions import local_run
from dropflow.states import SessionState
from translator.logical import LogicalGraph
from translator.options import DEFAULT_ALGORITHM, ComponentOptions, PartitionOptions, UnrollOptions
from translator.pipeline import Translation, examine, finish
from translator.repository import RepositoryFile, fetch_file, is_repository_address

GraphSource = str | os.PathLike[str] | bytes | Mapping[str, Any] | Sequence[Any] | LogicalGraph | PhysicalGraph
"""A graph in any form: a path, the bytes of a file, decoded JSON, or a graph that was read or translated before."""

Settings = Mapping[str, Any] | Sequence[str]
"""Values of parameters: ``{"Scatter.num_of_copies": 4}``, or ``["Scatter.num_of_copies=4"]``."""


@dataclass(frozen=True)
class DropContent:
    """The content of a data drop after a run.

    Attributes
    ----------
    drop : str
        Text id of the drop.
    name : str
        Name of its node.
    """

    drop: str
    name: str
    _handle: Handle = field(repr=False)
    _is_joint: bool = field(default=False, repr=False)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self._handle.size

    @property
    def path(self) -> Path:
        """The file or directory that holds the content.

        Raises
        ------
        NotFoundError
            The content has no file: it is empty, or was small and lived in memory.
        """
        if not self._handle.location:
            raise NotFoundError(f"the content of {self.drop} is not in a file", hint="use read() or value()")
        return Path(self._handle.location)

    def read(self) -> bytes:
        """Return the whole content.

        Raises
        ------
        UsageError
            The content is a directory.
        StorageError
            It cannot be read.
        """
        return read(self._handle)

    def open(self) -> BinaryIO:
        """Return a binary stream over the content; close it after use. Raises the errors of `read`."""
        return open_content(self._handle)

    def value(self, encoding: str | None = None) -> Any:
        """Return the content as a Python value.

        Parameters
        ----------
        encoding : str, optional
            Name such as ``json``, ``npy`` or ``utf-8``. By default a pickle or an npy array is loaded, and any other
            content in UTF-8, such as the output of a command, is returned as str.

        Raises
        ------
        AppError
            The content is not in this encoding.
        BadParameterError
            There is no such encoding.
        """
        source = _Decoded(self._handle, name=self.name, is_joint=self._is_joint)
        if not encoding and self._handle.kind != "directory" and source.size and not holds_values(source):
            encoding = "utf-8"
        return decode(encoding, source)


class _Decoded:
    """A content with the interface that the decoders of `dropflow.apps.encodings` need."""

    port = ""
    in_memory = False

    def __init__(self, handle: Handle, *, name: str, is_joint: bool) -> None:
        self._handle = handle
        self.name = name
        self.is_joint = is_joint
        self.is_text = handle.text
        self.size = handle.size
        self.path = Path(handle.location)

    @property
    def url(self) -> str:
        return self.path.absolute().as_uri()

    def view(self) -> memoryview:
        return view(self._handle)

    def read(self) -> bytes:
        return read(self._handle)

    def open(self) -> BinaryIO:
        return open_content(self._handle)

    def warn(self, text: str) -> None:
        """Ignore warnings: there is no log after the run."""


@dataclass(frozen=True)
class RunResult:
    """How a run ended, and its contents.

    Attributes
    ----------
    status : SessionState
        FINISHED, FAILED or CANCELLED.
    states : mapping of str to int
        Number of drops by the name of their state.
    failures : tuple of FailureReport
        Root causes of drops in ERROR, the cause with the most such drops first. A finished run can have failures that
        error thresholds accepted.
    notes : tuple of str
        Other things that went wrong, such as a summary that could not be written.
    seconds : float
        Duration.
    directory : Path
        The session directory (``docs/reference/session-directory.md``).
    graph : PhysicalGraph
        The graph that ran.
    computed, reused : int
        Applications that have run, and those whose results were taken from earlier runs.
    """

    status: SessionState
    states: Mapping[str, int]
    failures: tuple[FailureReport, ...]
    notes: tuple[str, ...]
    seconds: float
    directory: Path
    graph: PhysicalGraph = field(repr=False)
    _contents: Mapping[int, Handle] = field(repr=False)
    computed: int = 0
    reused: int = 0

    @property
    def ok(self) -> bool:
        """Whether the run finished: every leaf drop completed or was skipped."""
        return self.status is SessionState.FINISHED

    @cached_property
    def results(self) -> tuple[DropContent, ...]:
        """Contents of the leaf data drops, in the order of the graph."""
        graph = self.graph
        leaves = graph.successors.ptr[1:] == graph.successors.ptr[:-1]
        return tuple(
            self._content(drop, handle)
            for drop, handle in sorted(self._contents.items())
            if leaves[drop] and graph.kinds[graph.template[drop]] == Kind.DATA
        )

    def content(self, drop: str) -> DropContent:
        """Return the content of one data drop.

        Parameters
        ----------
        drop : str
            Its text id or a unique end of it, or the name of a node that has a single drop.

        Raises
        ------
        NotFoundError
            There is no such drop, or its content was released, replaced by the content of a later drop, or never
            written.
        AmbiguousError
            Several drops have this name, or an id with this end.
        """
        row = self._row(drop)
        handle = self._contents.get(row)
        if handle is None:
            raise NotFoundError(
                f"drop {oid(self.graph, row)} has no content",
                hint="contents of drops in memory are released after their last consumer, unless 'persist' is set, "
                "and the next iteration of a loop replaces a file that it writes, too",
            )
        return self._content(row, handle)

    def _repr_html_(self) -> str:
        """Return status, states and causes of failures, for notebooks."""
        from dropflow.graph.notebook import session_html  # noqa: PLC0415 - only notebooks need it

        return session_html(
            self.graph.name,
            status=self.status.name,
            states=self.states,
            drops=self.graph.drops,
            seconds=self.seconds,
            failures=[failure._repr_html_() for failure in self.failures],
        )

    def _row(self, drop: str) -> int:
        graph = self.graph
        nodes = [row for row, node in enumerate(graph.templates) if node.kind is Kind.DATA and node.name == drop]
        if len(nodes) == 1:
            rows = (graph.template == nodes[0]).nonzero()[0]
            if len(rows) == 1:
                return int(rows[0])
        return find_drop(graph, drop)

    def _content(self, drop: int, handle: Handle) -> DropContent:
        node = self.graph.templates[self.graph.template[drop]]
        return DropContent(oid(self.graph, drop), node.name, handle, bool(node.collects))


def translate(
    graph: GraphSource,
    *,
    name: str | None = None,
    configuration: str | None = None,
    settings: Settings = (),
    parts: int | None = None,
    algorithm: str = DEFAULT_ALGORITHM,
    nodes: Sequence[str] = (),
) -> Translation:
    """Translate a logical graph into a physical graph. A physical graph is only partitioned and placed.

    No code of the graph is run or imported.

    Parameters
    ----------
    graph : path, bytes, decoded JSON, LogicalGraph or PhysicalGraph
        The graph.
    name : str, optional
        Name of the graph; by default the name of the file without its suffix.
    configuration : str, optional
        Id or name of a stored graph configuration, applied on top of the active one.
    settings : mapping or sequence of str
        Values of parameters: ``{"NODE.PARAM": value}`` or ``["NODE.PARAM=VALUE"]``; ``global.NAME`` sets a global
        variable.
    parts : int, optional
        Number of parts; by default that of `nodes`. Without either the graph is not partitioned.
    algorithm : str
        Algorithm of the partition: a name in ``docs/explanation/planning.md``.
    nodes : sequence of str
        Names of the nodes to place the parts on.

    Returns
    -------
    Translation
        With the physical graph as `graph`, and warnings as `problems`.

    Raises
    ------
    BadFileError
        The file cannot be read.
    BadGraphError
        The graph cannot be translated; `problems` has all problems.
    """
    given, name = _given(graph, name)
    examined = examine(
        given,
        name=name,
        configuration=configuration,
        settings=settings,
        component_options=ComponentOptions(),
    )
    wanted = len(nodes) or None if parts is None else parts
    options = PartitionOptions(parts=wanted, algorithm=algorithm) if wanted is not None else None
    return finish(examined, partition_options=options, nodes=nodes)


def check(
    graph: GraphSource,
    *,
    name: str | None = None,
    configuration: str | None = None,
    settings: Settings = (),
    here: bool = False,
) -> tuple[Problem, ...]:
    """Return all problems of a graph, its components included.

    No code of the graph is run or imported. An empty result, or one with warnings only, means that the graph can be
    translated; with `here`, that it can run on this machine.

    Parameters
    ----------
    graph, name, configuration, settings
        As in `translate`.
    here : bool
        Whether a component that cannot run on this machine, such as a class that is not installed, is an error;
        otherwise it is a warning, because other machines may have it.

    Raises
    ------
    BadFileError
        The file cannot be read.
    """
    given, name = _given(graph, name)
    options = ComponentOptions(here=here)
    return examine(given, name=name, configuration=configuration, settings=settings, component_options=options).problems


def run(
    graph: GraphSource,
    *,
    name: str | None = None,
    configuration: str | None = None,
    settings: Settings = (),
    parts: int | None = None,
    directory: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    on_session: Callable[[Session], None] | None = None,
    **options: Unpack[RunKeywords],
) -> RunResult:
    """Run a graph on this machine to its end, as ``dropflow run`` does.

    With worker processes, a script that calls this needs no ``if __name__ == "__main__"``: workers do not import it.

    Parameters
    ----------
    graph, name, configuration, settings
        As in `translate`.
    parts : int, optional
        Partition the graph first.
    directory : path, optional
        Session directory. By default a new directory below ``dropflow-runs``.
    overwrite : bool
        Replace an earlier session in `directory`, with all of its results.
    on_session : callable, optional
        Called with the session before it starts. Its `cancel` may be called from any thread.
    **options
        How it runs, as the options of ``dropflow run`` of these names: `runner` (``processes``, ``threads``,
        ``inline``, in this thread one after the other, ``dask`` or ``dask=ADDRESS``, ``ray`` or ``ray=ADDRESS``, or
        ``package.module:function``, which makes a runner of your own), `workers`, `infrastructure_retries`,
        `retry_memory` (such as 2.0), `until` (in seconds since the epoch), `durable` and `check`; `reuse`, `store`,
        `verify_reuse` (a share from 0 to 1) and `trust_times`; `report_locals`, for local variables of functions that
        fail.

    Returns
    -------
    RunResult
        The result, also if the session failed: see `ok`.

    Raises
    ------
    BadFileError
        The file cannot be read.
    BadGraphError
        The graph cannot be translated, or a component cannot be used; `problems` has all problems.
    ConflictError
        `directory` has files that are not of a session, or an earlier session.
    StorageError
        The session directory cannot be made or written.
    """
    given, name = _given(graph, name)
    examined = examine(
        given,
        name=name,
        unroll_options=UnrollOptions(),
        configuration=configuration,
        settings=settings,
        component_options=ComponentOptions(here=True),
    )
    partition_options = PartitionOptions(parts=parts) if parts is not None else None
    physical = finish(examined, partition_options=partition_options).graph
    chosen = run_options(options)
    sessions: list[Session] = []

    def started(session: Session) -> None:
        sessions.append(session)
        if on_session is not None:
            on_session(session)

    result = local_run.run(
        physical,
        lambda: local_run.directory_for(physical, directory, chosen, overwrite=overwrite),
        chosen,
        hooks=local_run.RunHooks(on_session=started),
    )
    return RunResult(
        status=result.status,
        states=result.states,
        failures=result.failures,
        notes=result.notes,
        seconds=result.seconds,
        directory=Path(result.directory),
        graph=physical,
        _contents=sessions[0].contents(),
        computed=result.computed,
        reused=result.reused,
    )


def _given(
    graph: GraphSource, name: str | None
) -> tuple[Path | bytes | RepositoryFile | LogicalGraph | PhysicalGraph, str | None]:
    """Return a graph in the form that the pipeline takes, and its name."""
    if isinstance(graph, LogicalGraph | PhysicalGraph):
        return graph, name or graph.name
    if isinstance(graph, bytes):
        return graph, name
    if isinstance(graph, str) and is_repository_address(graph):
        return fetch_file(graph), name
    if isinstance(graph, str | os.PathLike):
        return Path(graph), name
    try:
        return msgspec.json.encode(graph), name
    except (TypeError, ValueError, RecursionError) as error:
        raise BadFileError(
            f"the graph cannot be written as JSON: {error}", hint="give what json.load returns"
        ) from error
