"""The translator service: queues sources for worker processes and keeps the results."""

import contextlib
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dropflow.api.client import Client
from dropflow.api.error_body import from_body, to_body
from dropflow.api.node_records import NodeInfo
from dropflow.clock import Clock, SystemClock
from dropflow.errors import ConflictError, GoneError, NotFoundError, UsageError, WorldError
from dropflow.failure import Problem
from dropflow.graph import codec
from dropflow.graph.notes import (
    LogicalNote,
    RepositoryNote,
    logical_of,
    planning_of,
    repository_of,
    submission_options,
    without_past_walltime,
)
from dropflow.session_options import SubmitOptions
from translator.options import DEFAULT_ALGORITHM, PartitionOptions
from translator.parameters import value_text
from translator.problem_codes import BAD_PARTITION
from translator.web.deployer import Deployer
from translator.web.export import ExportForm, ExportOrder
from translator.web.jobs import TranslationQueue
from translator.web.records import (
    Deployed,
    DeployRequest,
    FillRequest,
    Forecast,
    RepartitionRequest,
    TranslateQuery,
    TranslationInfo,
    TranslationOrder,
    TranslationReport,
    TranslatorLimits,
    partition_options,
)
from translator.web.translation_process import GRAPH, ORDER, REPORT, SOURCE
from translator.web.translation_store import TranslationStore

_log = logging.getLogger("dropflow.translator")
_LONGEST_NAME = 200
"""Characters of the name of a graph."""
_USUAL = SubmitOptions()
_UNREADABLE = (OSError, ValueError, RecursionError)
"""Errors of reading a record: msgspec raises UnicodeDecodeError, too."""


class TranslatorService:
    """Translations by id. All methods may be called from any thread.

    Parameters
    ----------
    root : Path
        Folder for sources and results, of this service only.
    managers : sequence of str
        Addresses of the managers that graphs may be deployed to.
    connect : callable
        Makes a client for one of them.
    limits : TranslatorLimits, optional
        Limits of the cost of translations.
    clock : Clock, optional
        For the times of translations.

    Raises
    ------
    ConflictError
        Another translator uses the folder.
    UsageError
        The address of a manager is not a URL.
    """

    def __init__(
        self,
        root: Path,
        *,
        managers: Sequence[str] = (),
        connect: Callable[[str], Client],
        limits: TranslatorLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.limits = limits or TranslatorLimits()
        self.deployer = Deployer(managers, connect)
        self._clock: Clock = clock or SystemClock()
        # Guards what is known of the translations. Threads of the server read it and wait in `get` for an end, which
        # threads of the queue report.
        self._change = threading.Condition()
        self._store = TranslationStore(root, kept=self.limits.kept, kept_bytes=self.limits.kept_bytes)
        self._known = {identity: info for identity in self._store.ids() if (info := self._restored(identity))}
        self._jobs = TranslationQueue(
            workers=self.limits.workers,
            waiting=self.limits.waiting,
            seconds=self.limits.seconds,
            on_stage=self._on_stage,
            on_end=self._on_end,
        )

    def now(self) -> float:
        """Return the time, in seconds since the epoch."""
        return self._clock.now()

    def submit(
        self,
        source: bytes | Path,
        query: TranslateQuery,
        *,
        settings: Sequence[str] = (),
        notes: Sequence[Problem] = (),
        submission: SubmitOptions = _USUAL,
        repository: RepositoryNote | None = None,
    ) -> TranslationInfo:
        """Queue a source for translation.

        Parameters
        ----------
        source : bytes or Path
            A logical graph of any family, a list of drops, or a ``.dfg`` container.
        query : TranslateQuery
            How to translate it.
        settings : sequence of str
            More values, as in `TranslateQuery.settings`; they may have several lines.
        notes : sequence of Problem
            Findings about the form. After an error among them the graph is refused.
        submission : SubmitOptions
            How its session is to run, unless something else is asked for.
        repository : RepositoryNote, optional
            Where the source was read from, if that is a repository.

        Raises
        ------
        HttpError
            503: too many are waiting.
        UsageError
            The source is empty.
        StorageError
            It cannot be stored.
        """
        if not isinstance(source, Path) and not source.strip():
            raise UsageError("the graph is empty", hint="send the contents of a graph file")
        self._jobs.check_room()
        order = TranslationOrder(
            name=_tidy(query.name) or "graph",
            created=self._clock.now(),
            options=partition_options(query),
            configuration=query.configuration,
            settings=(*(line.strip() for line in query.settings.splitlines() if line.strip()), *settings),
            prefix=query.prefix,
            rehearsal=query.rehearsal,
            compare=query.compare,
            notes=tuple(notes),
            submission=submission,
            repository=repository,
            limits=self.limits,
        )
        return self._enqueue(source, order)

    def like(self, manager: str, session: str) -> TranslationInfo:
        """Queue the graph of a session with its values and options, to be changed and run again.

        That is its logical graph; or if the session has none, its drops.

        Raises
        ------
        UsageError
            The manager is not configured.
        DropflowError
            As `dropflow.api.manager.Manager.graph`.
        """
        graph = self.deployer.graph(manager, session)
        note = logical_of(graph) or LogicalNote(document=b"".join(codec.dump(graph)))
        planned = PartitionOptions()
        with contextlib.suppress(msgspec.ValidationError):
            planned = msgspec.convert(planning_of(graph) | {"parts": 1}, PartitionOptions)
        named: dict[str, Any] = {"name": graph.name[-_LONGEST_NAME:], "configuration": note.configuration}
        return self.submit(
            note.document,
            TranslateQuery(**msgspec.structs.asdict(planned) | named),
            settings=note.settings,
            submission=without_past_walltime(submission_options(graph), self._clock.now()),
            repository=repository_of(graph),
        )

    def again(
        self,
        identity: str,
        *,
        fill: FillRequest | None = None,
        partition: RepartitionRequest | None = None,
        nodes: Sequence[NodeInfo] = (),
        submission: SubmitOptions | None = None,
    ) -> TranslationInfo:
        """Queue the source of a translation again, with other values or another partition.

        If neither differs from those of a translation that is done, that is the answer.

        Parameters
        ----------
        fill : FillRequest, optional
            Values for its parameters.
        partition : RepartitionRequest, optional
            How to partition it, for `nodes` as they are now, otherwise for equal nodes.
        submission : SubmitOptions, optional
            How its session is to run, unless something else is asked for.

        Raises
        ------
        NotFoundError
            There is none of this id.
        ConflictError
            There are values, but it has not ended yet, or its graph has no parameters.
        GoneError
            It is being deleted.
        HttpError
            503: too many are waiting.
        """
        info, order = self.get(identity), self._order(identity)
        changed = order if fill is None else _filled(order, info, fill)
        if partition is not None:
            changed = _partitioned(changed, info, partition, nodes)
        if changed == order and info.state == "done" and not nodes:
            return info
        changed = msgspec.structs.replace(
            changed, created=self._clock.now(), limits=self.limits, submission=submission or order.submission
        )
        return self._enqueue(self._store.path(identity) / SOURCE, changed)

    def options(self, identity: str) -> PartitionOptions:
        """Return how a translation was partitioned.

        Raises
        ------
        GoneError
            It was removed.
        """
        return self._order(identity).options

    def _order(self, identity: str) -> TranslationOrder:
        """Return how a translation was asked for, to ask for another one of the same source."""
        self._jobs.check_room()
        try:
            return msgspec.json.decode((self._store.path(identity) / ORDER).read_bytes(), type=TranslationOrder)
        except _UNREADABLE as error:
            raise GoneError("the translation was removed, or is damaged", hint="translate the graph again") from error

    def get(self, identity: str, *, seconds: float = 0.0) -> TranslationInfo:
        """Return a translation at its end, or after `seconds`.

        Raises
        ------
        NotFoundError
            There is none of this id.
        """
        with self._change:
            self._change.wait_for(lambda: identity not in self._known or self._known[identity].is_over, seconds)
            info = self._known.get(identity)
        if info is None:
            raise NotFoundError(
                "there is no such translation",
                where=identity[:64],
                hint="translate the graph again: old ones are deleted",
            )
        return info

    def result(self, identity: str, *, seconds: float | None = None) -> TranslationInfo:
        """Return a translation that has a graph, waiting for its end.

        Raises
        ------
        NotFoundError
            There is none of this id.
        ConflictError
            It has not ended yet.
        DropflowError
            It ended without a graph: its error.
        """
        info = self.get(identity, seconds=self.limits.seconds if seconds is None else seconds)
        if info.report is None:
            raise ConflictError("the translation has not ended yet", hint="wait for it", where=identity)
        if info.report.error is not None:
            body = msgspec.structs.replace(info.report.error, problems=info.report.problems)
            raise from_body(500, {"error": msgspec.to_builtins(body)})
        return info

    def all(self) -> tuple[TranslationInfo, ...]:
        """Return all translations, the youngest first, without their reports."""
        with self._change:
            infos = list(self._known.values())
        return tuple(msgspec.structs.replace(info, report=None) for info in reversed(infos))

    def source(self, identity: str) -> Path:
        """Return the file with the source, as it was sent."""
        self.get(identity)
        return self._store.path(identity) / SOURCE

    def graph(self, identity: str) -> Path:
        """Return the physical graph as a ``.dfg`` file. Raises as `result`, without waiting."""
        self.result(identity, seconds=0)
        return self._store.path(identity) / GRAPH

    def export(
        self,
        identity: str,
        *,
        nodes: Sequence[str] = (),
        islands: Sequence[str] = (),
        form: ExportForm = "list",
        has_plan: bool = True,
    ) -> Iterator[bytes]:
        """Return the physical graph as DALiuGE's JSON, or for other programs, in pieces, to be exhausted or closed.

        Parameters
        ----------
        nodes, islands, form, has_plan
            See `translator.web.export.ExportOrder`.

        Raises
        ------
        DropflowError
            As `result`, without waiting.
        HttpError
            503: too many exports run already.
        """
        self.result(identity, seconds=0)
        order = ExportOrder(
            nodes=tuple(nodes),
            islands=tuple(islands),
            form=form,
            has_plan=has_plan,
            memory=self.limits.memory,
            seconds=self.limits.seconds,
        )
        return self._jobs.export(self._store.path(identity), order)

    def deploy(self, identity: str, request: DeployRequest) -> Deployed:
        """Start a session with the graph of a translation.

        Raises
        ------
        UsageError
            The manager is not configured.
        DropflowError
            As `result`, without waiting; as the manager refuses; or it cannot be reached.
        """
        manager = self.deployer.known(request.manager)
        self.result(identity, seconds=0)
        if request.spread:
            nodes = self.deployer.nodes(manager)
            known = msgspec.structs.asdict(self.options(identity)) | {"parts": len(nodes)}
            wanted = RepartitionRequest(**known)
            if wanted.algorithm == "none":
                wanted = msgspec.structs.replace(wanted, algorithm=DEFAULT_ALGORITHM)
            identity = self.result(self.again(identity, partition=wanted, nodes=nodes).id).id
        return self.deployer.deploy(self.graph(identity), manager, request)

    def forecast(self, identity: str, manager: str, submission: SubmitOptions) -> Forecast:
        """Return what a session with the graph of a translation would run, on nodes that share the store of this host.

        Reading the code of functions may run that of their packages, so it is done by a process of its own.

        Raises
        ------
        UsageError
            The manager is not configured.
        WorldError
            It takes longer than a translation may, or cannot be found out.
        DropflowError
            As `result`, without waiting.
        """
        command = [sys.executable, "-m", "dropflow", "submit", str(self.graph(identity)), "--dry-run"]
        command += ["--to", self.deployer.known(manager), "--output", "json"]
        command += ["--trust-times"] if submission.trust_times else []
        try:
            ended = subprocess.run(  # noqa: S603 - our own command
                command, capture_output=True, stdin=subprocess.DEVNULL, timeout=self.limits.seconds, check=False
            )
            return msgspec.json.decode(ended.stdout, type=Forecast)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise WorldError(f"cannot find out what would run: {error}") from error
        except msgspec.DecodeError as error:
            with contextlib.suppress(msgspec.DecodeError):
                raise from_body(500, msgspec.json.decode(ended.stdout)) from error
            printed = ended.stderr.decode(errors="replace").strip()[-2000:]
            raise WorldError(f"cannot find out what would run: {printed}") from error

    def delete(self, identity: str) -> None:
        """Stop a translation if it runs, and delete it.

        Raises
        ------
        NotFoundError
            There is none of this id.
        """
        self.get(identity)
        with self._change:
            self._known.pop(identity, None)
            self._change.notify_all()
        self._jobs.cancel(identity)
        self._store.remove(identity)

    def close(self) -> None:
        """Stop the workers and unlock the folder. Results stay on disk. Idempotent."""
        self._jobs.close()
        self._store.close()

    def _enqueue(self, source: bytes | Path, order: TranslationOrder) -> TranslationInfo:
        try:
            identity = self._store.add(source, msgspec.json.encode(order), busy=self._busy())
        finally:
            self._forget_removed()
        info = _info(identity, order)
        with self._change:
            self._known[identity] = info
        self._jobs.submit(identity, self._store.path(identity))
        return info

    def _busy(self) -> list[str]:
        with self._change:
            return [identity for identity, info in self._known.items() if not info.is_over]

    def _on_stage(self, identity: str, stage: str) -> None:
        with self._change:
            info = self._known.get(identity)
            if info is not None:
                self._known[identity] = msgspec.structs.replace(info, state="running", stage=stage)

    def _on_end(self, identity: str, failure: WorldError | None) -> None:
        report = _report(self._store.path(identity), failure)
        with self._change:
            info = self._known.get(identity)
            if info is None:  # deleted meanwhile, with everything that its process has written
                self._store.remove(identity)
                return
        if failure is not None:
            self._note(identity, report)
        self._store.measure(identity)
        self._store.trim(busy=[*self._busy(), identity])
        with self._change:
            self._known[identity] = msgspec.structs.replace(
                info, state=report.state, stage="", report=report, finished=self._clock.now()
            )
            self._change.notify_all()
        self._forget_removed()

    def _forget_removed(self) -> None:
        """Drop translations that the store has deleted."""
        with self._change:
            kept = frozenset(self._store.ids())
            for name in [name for name in self._known if name not in kept]:
                del self._known[name]
            self._change.notify_all()

    def _note(self, identity: str, report: TranslationReport) -> None:
        """Store a report that no worker wrote; if that fails, the report is lost with this process."""
        unfinished = self._store.path(identity) / f"{REPORT}.part"
        try:
            unfinished.write_bytes(msgspec.json.encode(report))
            unfinished.replace(unfinished.with_name(REPORT))
        except OSError as error:
            _log.warning("the report of translation %s cannot be stored: %s", identity, error)

    def _restored(self, identity: str) -> TranslationInfo | None:
        """Return a translation of an earlier process. One that had not ended is deleted; a damaged one has failed."""
        folder = self._store.path(identity)
        try:
            finished = (folder / REPORT).stat().st_mtime
        except OSError:
            self._store.remove(identity)
            return None
        try:
            order = msgspec.json.decode((folder / ORDER).read_bytes(), type=TranslationOrder)
        except _UNREADABLE as error:
            order = TranslationOrder(name=identity, created=finished)
            report = _report(folder, WorldError(f"its {ORDER} cannot be read: {error}", where=str(folder)))
        else:
            report = _report(folder, None)
        return msgspec.structs.replace(_info(identity, order), state=report.state, report=report, finished=finished)


def _filled(order: TranslationOrder, info: TranslationInfo, request: FillRequest) -> TranslationOrder:
    """Return an order with other values of parameters."""
    if info.report is None:
        raise ConflictError("the translation has not ended yet", hint="wait for it", where=info.id)
    form = info.report.form
    if form is None:
        raise ConflictError("the graph has no parameters", hint="set single fields with settings", where=info.id)
    names = {field.name for field in (*form.parameters, *form.nodes)} | request.values.keys()
    kept = [text for text in order.settings if text.partition("=")[0].strip().removeprefix("global.") not in names]
    given = {name: value_text(value).strip() for name, value in request.values.items()}
    fields = {node.name for node in form.nodes}
    targets = {name: name if name in fields else f"global.{name}" for name in given}
    settings = (*kept, *(f"{targets[name]}={value}" for name, value in given.items() if value))
    if (settings, request.configuration) == (order.settings, order.configuration):
        return order
    return msgspec.structs.replace(order, settings=settings, configuration=request.configuration, plans=())


def _partitioned(
    order: TranslationOrder, info: TranslationInfo, request: RepartitionRequest, nodes: Sequence[NodeInfo]
) -> TranslationOrder:
    """Return an order with another partition; the plans of all algorithms are kept as long as they are the same."""
    options = partition_options(request)
    if options == order.options and not (nodes or request.compare):
        return order
    plans = info.report.plans if info.report is not None else ()
    is_same = _steered(options) == _steered(order.options) and not (nodes or order.nodes)
    return msgspec.structs.replace(
        order,
        options=options,
        nodes=tuple(nodes),
        compare=request.compare,
        plans=plans if is_same else (),
        notes=tuple(note for note in order.notes if note.code != BAD_PARTITION),
    )


def _steered(options: PartitionOptions) -> PartitionOptions:
    """Return options that are equal if the plans of all algorithms are."""
    return msgspec.structs.replace(options, algorithm="", imbalance=options.allowed_imbalance)


def _info(identity: str, order: TranslationOrder) -> TranslationInfo:
    return TranslationInfo(
        id=identity,
        name=order.name,
        state="waiting",
        stage="waiting for a free worker",
        created=order.created,
        algorithm=order.options.algorithm,
        parts=order.options.parts,
        imbalance=order.options.allowed_imbalance,
        submission=order.submission,
    )


def _report(folder: Path, failure: WorldError | None) -> TranslationReport:
    if failure is None:
        try:
            return msgspec.json.decode((folder / REPORT).read_bytes(), type=TranslationReport)
        except _UNREADABLE as error:
            failure = WorldError(f"its {REPORT} cannot be read: {error}", where=str(folder))
    return TranslationReport(state="failed", error=to_body(failure))


def _tidy(name: str) -> str:
    """Return the name of a graph from that of its file: without folders, ending and unprintable characters."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    shown = "".join(sign if sign.isprintable() else " " for sign in last).strip()
    for ending in (".graph", ".json", ".dfg"):
        shown = shown.removesuffix(ending)
    return shown[:_LONGEST_NAME].strip()
