"""The values of data after a run on this machine, or in a session of a cluster."""

import logging
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from dropflow.api.client import Client
from dropflow.api.drop_records import ResultInfo
from dropflow.api.patience import PatientClient
from dropflow.api.requests import SubmitQuery
from dropflow.api.session_records import FailureInfo, SessionDetail
from dropflow.apps.encodings import canonical
from dropflow.apps.formats import FORMATS
from dropflow.builder.handles import Data
from dropflow.errors import AppError, DropflowError, NotFoundError, UsageError
from dropflow.execution.content_location import Handle
from dropflow.formatting import last_lines, single_line
from dropflow.functions import DropContent, RunResult
from dropflow.graph.notebook import (
    HtmlView,
    failure_html,
    graph_html,
    notebook_display,
    problems_html,
    session_html,
)
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Template
from dropflow.graph.text_ids import oid
from dropflow.submission.options import ConnectionOptions, environment_connection
from translator.options import PartitionOptions

if TYPE_CHECKING:
    from translator.plan.machines import Machines

_log = logging.getLogger(__name__)

_WATCH_SECONDS = 20.0
"""Seconds of one long poll for another version of the session."""
_LOGS, _LOG_BYTES = 10, 16_384
_SINGLE = ("subgraph", "exclusive", "service", "store")
"""Levels of constructs that do not repeat their nodes."""


_LONGEST = 200
"""Letters of the root cause in the text of a run."""


class GraphRun:
    """How a run of a graph ended, and the values of its data.

    Attributes
    ----------
    result : RunResult
        Status, states, failures, contents and directory.
    """

    def __init__(self, result: RunResult) -> None:
        self.result = result

    @property
    def ok(self) -> bool:
        """Whether the run finished: every leaf drop completed or was skipped."""
        return self.result.ok

    def value(self, data: Data) -> Any:
        """Return the value of data of the graph.

        Parameters
        ----------
        data : Data
            What a call of the graph returned. Data that functions read and that are not results need
            ``data.set(persist=True)``.

        Returns
        -------
        Any
            The value; of data in constructs the list of all copies, in order, without those that have none.

        Raises
        ------
        AppError
            There is no value, because the run failed; the text has the cause.
        NotFoundError
            There is no value: it was skipped, or removed after its last consumer.
        UsageError
            `data` are of another graph.
        """
        values = []
        rows, is_list = _rows(self.result.graph, data)
        for row in rows:
            try:
                values.append(self.result.content(oid(self.result.graph, row)).value(data.node.encoding))
            except NotFoundError:
                if not is_list:
                    raise self._no_value(data) from None
        if not values and rows:
            raise self._no_value(data)
        return values if is_list else values[0]

    def _no_value(self, data: Data) -> AppError | NotFoundError:
        return _missing(
            data,
            self.result.status.name,
            [(failure.name, failure.text, failure.hint) for failure in self.result.failures],
        )

    def _repr_html_(self) -> str:
        return self.result._repr_html_()

    def __repr__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in self.result.states.items() if count)
        text = f"<GraphRun {self.result.status.name}: {states} in {self.result.seconds:.2f} s, {self.result.directory}>"
        if self.ok or not self.result.failures:
            return text
        first = self.result.failures[0]
        return f"{text}\n{single_line(f'{first.name} ({first.drop}): {first.text}', _LONGEST)}"


class SubmittedGraph:
    """A session of a cluster that runs a graph.

    Attributes
    ----------
    session : str
        Its name.
    client : Client
        The connection to the manager.
    """

    def __init__(self, client: Client, session: str, graph: PhysicalGraph) -> None:
        self.client = client
        self.session = session
        self.graph = graph

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the session goes on. ``with graph.submit() as session`` does so at its end."""
        self.client.close()

    @property
    def status(self) -> str:
        """Its state now: a name of `dropflow.SessionState`, or UNKNOWN."""
        return self.detail().status

    def detail(self) -> SessionDetail:
        """Return the session as it is now, with the numbers of drops and the root causes of failures.

        Raises
        ------
        LinkError
            The manager does not answer.
        """
        return self.client.session(self.session)

    def wait(self) -> "SubmittedGraph":
        """Wait until the session is over, and return this object. An interrupt leaves the session running.

        Raises
        ------
        LinkError
            The manager does not answer; the session goes on.
        """
        for _ in self.details():
            pass
        return self

    def show(self) -> "SubmittedGraph":
        """Show the session in a notebook, live until it is over, and return this object.

        An interrupt leaves it running.

        Raises
        ------
        MissingDependencyError
            There is no IPython, and so no notebook: use `wait`.
        LinkError
            The manager does not answer; the session goes on.
        """
        display = notebook_display()
        details = self.details()
        shown = display(self.view(next(details)), display_id=True)
        for detail in details:
            shown.update(self.view(detail))
        return self

    def view(self, detail: SessionDetail) -> HtmlView:
        """Return what a notebook shows of the session as it was in `detail`."""
        return HtmlView(self._html(detail), repr(self))

    def details(self) -> Iterator[SessionDetail]:
        """Yield the session as it is now, and after each change, until it is over."""
        detail = self.detail()
        yield detail
        while not detail.is_over:
            detail = self.client.watch(self.session, version=detail.version, seconds=_WATCH_SECONDS)
            yield detail

    def _html(self, detail: SessionDetail) -> str:
        failures = [
            failure_html(
                failure.name,
                failure.drop,
                code=failure.code,
                text=failure.text,
                hint=failure.hint,
                detail=failure.detail,
                inputs=failure.inputs,
                count=failure.count,
                log=self._log_end(failure),
            )
            for failure in detail.failures[:_LOGS]
        ]
        progress = session_html(
            self.session,
            status=detail.status,
            states=detail.states,
            drops=detail.drops,
            seconds=detail.seconds,
            failures=failures,
            time_left=detail.time_left,
            link=f"{self.client.url}/sessions/{quote(self.session, safe='')}",
        )
        return progress + graph_html(self.graph, {node.key: node.states for node in detail.logical})

    def _log_end(self, failure: FailureInfo) -> str:
        if not failure.has_log:
            return ""
        with suppress(DropflowError):
            tail = b""
            for chunk in self.client.log(self.session, failure.drop).chunks:
                tail = (tail + chunk)[-_LOG_BYTES:]
            return last_lines(tail)
        return ""

    def _repr_html_(self) -> str:
        try:
            return self._html(self.detail())
        except DropflowError as error:
            return problems_html(repr(self), [str(error)])

    def cancel(self) -> None:
        """Cancel the session."""
        self.client.cancel(self.session)

    def value(self, data: Data) -> Any:
        """Return the value of data of the graph, as `GraphRun.value`; call `wait` first.

        Raises
        ------
        AppError, NotFoundError, UsageError
            As `GraphRun.value`. Also a `UsageError` if it is a directory, or a path: it is on another host.
        LinkError
            The manager does not answer.
        """
        rows, is_list = _rows(self.graph, data)
        there = {result.drop: result for result in self.client.results(self.session).results}
        values = []
        for row in rows:
            if row in there:
                template = self.graph.templates[self.graph.template[row]]
                values.append(self._value(data, there[row], is_joint=bool(template.collects)))
        if rows and not values:
            detail = self.detail()
            failures: Sequence[FailureInfo] = detail.failures
            raise _missing(data, detail.status, [(failure.name, failure.text, failure.hint) for failure in failures])
        return values if is_list else values[0]

    def _value(self, data: Data, result: ResultInfo, *, is_joint: bool) -> Any:
        encoding = canonical(data.node.encoding)
        if result.is_directory or encoding == "path":
            raise UsageError(
                f"{data.name!r} is a {'directory' if result.is_directory else 'file'} on node {result.node}",
                hint=f"download it with 'dropflow fetch {shlex.quote(self.session)}', and open it here",
            )
        body = b"".join(self.client.data(self.session, result.oid).chunks)
        handle = Handle(kind="bytes", body=body, size=len(body))
        with TemporaryDirectory(prefix="dropflow-") as folder:
            if encoding in FORMATS:  # their libraries read files
                path = Path(folder, Path(result.path).name)
                path.write_bytes(body)
                handle = Handle(kind="file", location=str(path), size=len(body))
            return DropContent(result.oid, data.name, handle, is_joint).value(encoding)

    def __repr__(self) -> str:
        return f"<SubmittedGraph {self.session!r} at {self.client.url}>"


def connected(*, url: str | None, token: str | None, key: str | os.PathLike[str] | None) -> Client:
    """Return a client of a manager; what is not given is looked for as the commands do.

    Raises
    ------
    NoManagerError, UsageError, LinkError
        As `dropflow.submission.options.ConnectionOptions.connect`.
    """
    known = environment_connection()
    return ConnectionOptions(
        url=url or known.url, token=token or known.token, key=known.key if key is None else os.fspath(key)
    ).connect()


def submit(
    manager: PatientClient,
    graph: PhysicalGraph,
    *,
    session: str,
    algorithm: str = "",
    with_parts: "Callable[[PhysicalGraph, Machines], PhysicalGraph] | None" = None,
    with_places: Callable[[PhysicalGraph], PhysicalGraph] | None = None,
    replicas: int = 1,
    memory_limit: int = 0,
    is_known: bool = False,
) -> SubmittedGraph:
    """Deploy a graph on the nodes of a manager, with one part for each node that is alive.

    `algorithm` places it, as in ``dropflow submit --algorithm``; that command's default if it is empty. Without one,
    `with_parts` may divide it for the nodes. `with_places` may change the placed graph. Without both, the graph is
    placed again if a node is lost while it is deployed. Results are to be on `replicas` nodes. A node holds at most
    `memory_limit` bytes of contents in memory, if it is not 0. If `is_known`, the manager has answered before, and is
    asked again if it does not answer now.

    Raises
    ------
    LinkError
        The manager does not answer.
    UsageError
        No node is alive.
    """
    # Most graphs run on this machine, and need no planner.
    from dropflow.submission.submit import PlacementOptions, fit, submit_fitted, submit_once, usable_nodes  # noqa: PLC0415

    placement = PlacementOptions(planning=PartitionOptions(algorithm=algorithm) if algorithm else None)
    query = SubmitQuery(session=session, replicas=replicas, memory_limit=memory_limit)
    if with_parts is None and with_places is None:
        info, _ = submit_fitted(manager, graph, query, placement, weight=graph.weight, note=_log.info)
        return SubmittedGraph(manager.client, info.session, graph)
    find = partial(usable_nodes, note=_log.info)
    nodes = manager.ask(find) if is_known else find(manager.client)
    divided = graph if with_parts is None else with_parts(graph, nodes.machines(len(nodes.nodes)))
    parted = fit(divided, nodes, placement)
    placed = parted if with_places is None else with_places(parted)
    info = submit_once(manager, placed, query)
    return SubmittedGraph(manager.client, info.session, graph)


def _rows(graph: PhysicalGraph, data: Data) -> tuple[list[int], bool]:
    """Return the rows of the drops of data, and whether they have copies."""
    if not isinstance(data, Data):
        raise UsageError(f"{data!r:.60} is not data of the graph", hint="give the result of a call in the graph")
    for number, template in enumerate(graph.templates):
        if template.key == data.node.id:
            rows = np.flatnonzero(graph.template == number)
            single: tuple[str, ...] = _SINGLE
            if data.loop_aware:
                single = (*_SINGLE, "loop")
                rows = rows[_last_iterations(template, graph.instance[rows])]
            copies = [
                axis for axis in template.axes if axis.kind not in single and (axis.kind, axis.size) != ("gather", 1)
            ]
            is_list = any("always_list" in construct.fields for construct in data.graph.drawing.path(data.node))
            return rows.tolist(), is_list or bool(copies)
    raise UsageError(f"{data.name!r} is not in the graph that ran", hint="run the graph again after it was changed")


def _last_iterations(template: Template, instances: IntColumn) -> npt.NDArray[np.bool_]:
    """Return which instances are in the last iteration of all loops around them."""
    is_last = np.ones(len(instances), dtype=np.bool_)
    if template.axes:
        for axis, indices in zip(
            template.axes, np.unravel_index(instances, [axis.size for axis in template.axes]), strict=True
        ):
            if axis.kind == "loop":
                is_last &= indices == axis.size - 1
    return is_last


def _missing(data: Data, status: str, failures: list[tuple[str, str, str]]) -> AppError | NotFoundError:
    if failures:
        name, text, hint = failures[0]
        return AppError(f"{data.name!r} has no value, the run is {status}: {name} failed: {text}", hint=hint)
    return NotFoundError(
        f"{data.name!r} has no value in this run ({status})",
        hint="it was skipped, or removed after its last consumer: keep it with data.set(persist=True)",
    )
