"""Results that a run takes from the store before anything runs: whole branches of the graph. Only their ends are read.

Such drops are known when the session begins, as those of a session that continues
(`dropflow.execution.decisions.continuation`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dropflow.apps.template_cache import AppNode, TemplateCache, text_or_none
from dropflow.clock import Clock
from dropflow.data.repository import LocalRepository
from dropflow.data.store import Slot
from dropflow.errors import DropflowError
from dropflow.execution.content_location import Handle
from dropflow.execution.content_table import kept_drops
from dropflow.execution.decisions.continuation import Continuation
from dropflow.execution.decisions.drop_rules import decide_app, decide_data, effective_inputs
from dropflow.execution.decisions.events import KnownStates
from dropflow.execution.executor_spec import ReuseSpec
from dropflow.files import REUSE_LOG
from dropflow.graph.order import levels
from dropflow.graph.physical import Adjacency, PhysicalGraph
from dropflow.graph.templates import ORDER_PORT, Kind, Template
from dropflow.graph.text_ids import index_of, oid
from dropflow.reuse.attempt import attempt_key, input_digest, input_name, is_sampled, known_key
from dropflow.reuse.code import CodeReader
from dropflow.reuse.keys import NodeKey, deep_keys, node_keys
from dropflow.reuse.log import ReuseLog, TakenResult
from dropflow.reuse.result_store import Record, ResultStore, StoredContent
from dropflow.states import DropState

_COMPLETED = int(DropState.COMPLETED)
_KEYS = "keys.npy"


@dataclass
class ReusePlan:
    """Reuse of results in a graph, as far as it is known before the graph runs.

    Attributes
    ----------
    graph : PhysicalGraph
        The graph.
    nodes : tuple of NodeKey
        Dependencies of the results of each template.
    keys : uint64 array, shape (drops, 2)
        From `dropflow.reuse.keys.deep_keys`.
    taken : mapping of int to Record
        Applications whose outputs are taken from the store.
    spared : list of int
        Applications that do not run because nothing that runs reads their outputs.
    running : list of int
        All other applications, the last one in the graph first.
    contents : mapping of int to tuple of (str, str, bool)
        Name and digest of inputs from outside, and whether they are text, as in the keys of attempts; after
        `take_by_contents` also those of the outputs of taken applications.
    untold : mapping of int to str
        Names of inputs whose store does not tell when they change.
    """

    graph: PhysicalGraph
    nodes: tuple[NodeKey, ...]
    keys: npt.NDArray[np.uint64]
    taken: dict[int, Record] = field(default_factory=dict)
    spared: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    needed: bytearray = field(default_factory=bytearray)
    contents: dict[int, tuple[str, str, bool]] = field(default_factory=dict)
    untold: dict[int, str] = field(default_factory=dict)


class ReuseChoices(NamedTuple):
    """Options of reuse: `dropflow.session_options.RunOptions`."""

    verify: float = 0.0
    trust_times: bool = False


def reuse_spec(graph: PhysicalGraph, store: ResultStore, directory: str, choices: ReuseChoices) -> ReuseSpec:
    """Return how attempts reuse results if nothing is known before: on nodes, and in sessions that continue."""
    return _spec(graph, node_keys(graph, CodeReader(store), Path(directory)), store, directory, choices=choices)


def _spec(
    graph: PhysicalGraph,
    nodes: Sequence[NodeKey],
    store: ResultStore,
    directory: str,
    *,
    choices: ReuseChoices,
    keys: str = "",
) -> ReuseSpec:
    return ReuseSpec(
        store=store.where,
        graph=graph.name,
        nodes=tuple(None if node.reason or not node.parts else node.parts for node in nodes),
        always_run={row: node.reason for row, node in enumerate(nodes) if node.reason},
        keys=keys,
        log=f"{directory}/{REUSE_LOG}",
        verify=choices.verify,
        trust_times=choices.trust_times,
    )


def plan_reuse(
    graph: PhysicalGraph,
    store: ResultStore,
    repository: LocalRepository,
    choices: ReuseChoices,
    *,
    is_checked: bool = True,
) -> ReusePlan:
    """Return what a run of a graph takes from the store, and what runs. Writes nothing.

    Unless contents are checked (`is_checked`), they count as whole if they seem so by their size.

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    """
    nodes = node_keys(graph, CodeReader(store), Path(repository.workspace.directory))
    roots = _OutsideContents(graph, repository, trust_times=choices.trust_times)
    keys = deep_keys(graph, nodes, roots.digest)
    plan = ReusePlan(graph, nodes, keys, contents=roots.contents, untold=roots.untold)
    plan.needed = _needed_at_the_end(graph)
    branches = _KnownBranches(plan, store, repository.workspace.session, verify=choices.verify, is_checked=is_checked)
    apps = np.flatnonzero(graph.kinds[graph.template] == np.uint8(Kind.APP))
    for app in apps[np.argsort(-levels(graph)[apps], kind="stable")].tolist():
        branches.decide(app)
    return plan


def take_by_contents(plan: ReusePlan, store: ResultStore) -> None:
    """Let a plan take what attempts would find by the contents of their inputs, as far as these are known before.

    It is what happens on nodes, whose attempts ask one by one. For forecasts only: a run takes branches as a whole.
    """
    graph, is_order = plan.graph, _is_order(plan.graph)
    known = plan.contents
    skips: Counter[int] = Counter()

    def add(app: int, record: Record) -> None:
        written = [data for data, link in _edges(graph.successors, app) if not is_order[link]]
        skips.update(written[place] for place in record.skipped if place < len(written))
        for data, content in zip(written, record.outputs, strict=False):
            producers = graph.predecessors.ptr[data + 1] - graph.predecessors.ptr[data]
            if producers == 1 and content.kind != "null":
                known[data] = graph.templates[graph.template[data]].name, content.input_digest, content.text

    for app, record in plan.taken.items():
        add(app, record)
    running = []
    for app in reversed(plan.running):
        if _is_skipped(graph, app, skips):
            skips.update(graph.successors.of(app))
            continue
        node = plan.nodes[graph.template[app]]
        inputs = [(data, link) for data, link in _edges(graph.predecessors, app) if not is_order[link]]
        stored = None
        if not node.reason and node.parts and all(data in known for data, _ in inputs):
            parts = []
            for data, link in inputs:
                name, digest, is_text = known[data]
                component = graph.templates[graph.template[data]].component
                parts.append((graph.links[link].target_port, name, component, digest, is_text))
            ports = [graph.links[link].source_port for _, link in _edges(graph.successors, app)]
            stored = store.find(attempt_key(node.parts, index_of(graph, app), parts, ports))
        if stored is not None and all(store.is_there(content, checked=False) for content in stored.outputs):
            plan.taken[app] = stored
            add(app, stored)
        else:
            running.append(app)
    plan.running = running[::-1]


def _is_skipped(graph: PhysicalGraph, app: int, skips: Counter[int]) -> bool:
    """Return whether an application is in a branch that is not taken. `skips` counts producers that skip a drop."""
    before = graph.predecessors

    def state_of(data: int) -> DropState:
        block_skip = graph.templates[graph.template[data]].block_skip
        return decide_data(errors=0, skips=skips[data], producers=len(before.of(data)), block_skip=block_skip)

    inputs = before.of(app)
    template = graph.templates[graph.template[app]]
    decision = decide_app(
        errors=0,
        skips=sum(state_of(int(data)) is DropState.SKIPPED for data in inputs),
        effective=effective_inputs(template.effective_inputs, len(inputs)),
        threshold=template.error_threshold,
        block_skip=template.block_skip,
    )
    return decision is DropState.SKIPPED


class _OutsideContents:
    """The digests of files and directories from outside, which are read once."""

    def __init__(self, graph: PhysicalGraph, repository: LocalRepository, *, trust_times: bool) -> None:
        self._graph = graph
        self._repository = repository
        self._trusts = trust_times
        self._plans = TemplateCache(graph.templates, graph.links)
        self.contents: dict[int, tuple[str, str, bool]] = {}
        self.untold: dict[int, str] = {}

    def digest(self, drop: int) -> str | None:
        """Return the digest of a root; None if it is not known, as that of a file which does not exist."""
        graph, workspace = self._graph, self._repository.workspace
        slot = Slot(workspace, oid(graph, drop), drop, 1, 0, index=index_of(graph, drop))
        try:
            handle = self._plans.store(int(graph.template[drop])).initial(slot)
            inside = f"{workspace.directory}/"
            content_digest = input_digest(handle, inside, trust_times=self._trusts)
            name = graph.templates[graph.template[drop]].name
            if content_digest:
                self.contents[drop] = input_name(name, handle, inside), content_digest, handle.text
            elif handle.kind == "url":
                self.untold[drop] = name
            if handle.final:
                self._repository.discard(handle)
        except DropflowError:
            content_digest = None  # the attempt reports it
        return content_digest


def _needed_at_the_end(graph: PhysicalGraph) -> bytearray:
    """Return 1 for each data drop whose content is there when the session is over."""
    plans = TemplateCache(graph.templates, graph.links)
    persists = np.array([_persists(plans, row) for row in range(len(graph.templates))], np.bool_)
    return bytearray((persists[graph.template] | (np.frombuffer(kept_drops(graph), np.uint8) > 0)).astype(np.uint8))


def _persists(plans: TemplateCache, row: int) -> bool:
    template: Template = plans.templates[row]
    if template.kind is not Kind.DATA or template.persist is not None:
        return bool(template.persist)
    try:
        return plans.store(row).persists
    except DropflowError:
        return False


class _KnownBranches:
    """Decides from the last applications of a graph upwards which run, so that it looks up what may be needed only."""

    def __init__(self, plan: ReusePlan, store: ResultStore, session: str, *, verify: float, is_checked: bool) -> None:
        graph = plan.graph
        self._plan, self._store, self._session = plan, store, session
        self._verify, self._is_checked = verify, is_checked
        self._before, self._after = graph.predecessors, graph.successors
        self._inputs = np.diff(graph.predecessors.ptr)
        self._is_order = _is_order(graph)
        self._is_named_by_input = _named_by_inputs(graph)

    def decide(self, app: int) -> None:
        """Take an application from the store, spare it, or have it run."""
        plan = self._plan
        node = plan.nodes[plan.graph.template[app]]
        outputs = [data for data, _ in _edges(self._after, app)]
        is_needed = any(plan.needed[data] for data in outputs)
        if not is_needed and not node.reason:
            plan.spared.append(app)
            return
        record = None if node.reason else self._record(app)
        if record is not None:
            plan.taken[app] = record
            return
        plan.running.append(app)
        for data, link in _edges(self._before, app):
            plan.needed[data] |= not self._is_order[link]

    def _record(self, app: int) -> Record | None:
        """Return the record of an application if all can be taken that is needed of it."""
        plan = self._plan
        key = known_key(plan.keys[app])
        if not key or plan.graph.template[app] in self._is_named_by_input:
            return None
        if self._verify and is_sampled(self._session, oid(plan.graph, app), self._verify):
            return None
        record = self._store.find(key)
        if record is None or record.skipped:
            return None
        written = [data for data, link in _edges(self._after, app) if not self._is_order[link]]
        pairs = list(zip(written, record.outputs, strict=False))
        if len(pairs) != len(record.outputs):
            return None
        needed = [(data, content) for data, content in pairs if plan.needed[data]]
        is_whole = all(
            self._inputs[data] == 1 and self._store.is_there(content, checked=self._is_checked)
            for data, content in needed
        )
        return record if is_whole else None


def _edges(edges: Adjacency, drop: int) -> list[tuple[int, int]]:
    """Return the neighbours of a drop, with the links to them."""
    begin, end = edges.ptr[drop], edges.ptr[drop + 1]
    return list(zip(edges.neighbour[begin:end].tolist(), edges.link[begin:end].tolist(), strict=True))


def _is_order(graph: PhysicalGraph) -> list[bool]:
    """Return which links only order drops."""
    return [ORDER_PORT in (link.source_port, link.target_port) for link in graph.links]


def _named_by_inputs(graph: PhysicalGraph) -> frozenset[int]:
    """Return the application templates where an input may name the file of an output."""
    rows = set()
    for link in graph.links:
        if graph.templates[link.source].kind is Kind.APP:
            naming = AppNode(graph.templates[link.source]).naming(link)
            ports = {other.target_port for other in graph.links if other.target == link.source}
            if naming is not None and naming.name in ports:
                rows.add(link.source)
    return frozenset(rows)


# How a session begins with what is taken.


def begin_with(
    plan: ReusePlan,
    store: ResultStore,
    repository: LocalRepository,
    clock: Clock,
    choices: ReuseChoices,
) -> tuple[ReuseSpec, Continuation | None]:
    """Put what is taken into a session directory; return how its attempts reuse results, and with what it begins.

    Raises
    ------
    DropflowError
        A content cannot be written, or was removed from the store meanwhile.
    """
    graph, directory = plan.graph, repository.workspace.directory
    keys = f"{directory}/{_KEYS}"
    roots = np.zeros_like(plan.keys)
    for drop, (_, digest, _) in plan.contents.items():
        roots[drop] = int(digest[-32:-16], 16), int(digest[-16:], 16)
    np.save(keys, np.hstack([plan.keys, roots]))
    spec = _spec(graph, plan.nodes, store, directory, choices=choices, keys=keys)
    if not plan.taken:
        return spec, None  # without them nothing is spared, either
    lines = [TakenResult.of(app, record) for app, record in plan.taken.items()]
    lines += [TakenResult(app, is_needed=False) for app in plan.spared]
    ReuseLog(spec.log).add(*lines)
    contents = _put(plan, store, repository, clock)
    states = _states(plan)
    is_data = graph.kinds[graph.template] == np.uint8(Kind.DATA)
    lost = [drop for drop in np.flatnonzero(is_data & (states == _COMPLETED)).tolist() if drop not in contents]
    known = KnownStates(states=states.tobytes(), lost=tuple(lost), released=tuple(lost), reason="results were reused")
    repository.set_graph(graph)  # it adopts the contents again, with those that the session commits
    return spec, Continuation(known, contents, {})


def _states(plan: ReusePlan) -> npt.NDArray[np.uint8]:
    graph = plan.graph
    states = np.full(graph.drops, int(DropState.INITIALIZED), np.uint8)
    states[[*plan.taken, *plan.spared]] = _COMPLETED
    runs = np.zeros(graph.drops, np.bool_)
    runs[plan.running] = True
    before, after = graph.predecessors, graph.successors
    is_data = graph.kinds[graph.template] == np.uint8(Kind.DATA)
    waits = _any(before, runs)  # a producer runs
    is_root = np.diff(before.ptr) == 0
    is_idle = np.diff(after.ptr) > 0
    is_idle &= ~_any(after, runs)
    states[is_data & ~is_root & ~waits] = _COMPLETED
    states[is_data & is_root & is_idle] = _COMPLETED
    return states


def _any(edges: Adjacency, marked: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the drops that have a neighbour which is marked."""
    total = np.concatenate([[0], np.cumsum(marked[edges.neighbour])])
    marks: npt.NDArray[np.bool_] = total[edges.ptr[1:]] > total[edges.ptr[:-1]]
    return marks


def _put(plan: ReusePlan, store: ResultStore, repository: LocalRepository, clock: Clock) -> Mapping[int, Handle]:
    """Write the contents that are needed where the session has them, the first ones of the graph first."""
    graph = plan.graph
    plans, kept = TemplateCache(graph.templates, graph.links), kept_drops(graph)
    is_order = _is_order(graph)
    handles: dict[int, Handle] = {}
    now = clock.now()
    for app, record in reversed(plan.taken.items()):
        data = [(target, link) for target, link in _edges(graph.successors, app) if not is_order[link]]
        for number, ((target, link), content) in enumerate(zip(data, record.outputs, strict=True)):
            if not plan.needed[target] or target in handles:
                continue
            template = graph.templates[graph.template[target]]
            naming = plans.app(int(graph.template[app])).naming(graph.links[link])
            name = "" if naming is None else text_or_none(naming.value) or ""
            text_id = oid(graph, target)
            slot = Slot(repository.workspace, text_id, app, 1, number, now, name, bool(kept[target]))
            part = _written(store, content, plans, int(graph.template[target]), slot)
            handle = repository.commit(target, 1, template, part)
            handles[target] = repository.keep_result(target, text_id, template, handle) if kept[target] else handle
    return handles


def _written(store: ResultStore, content: StoredContent, plans: TemplateCache, row: int, slot: Slot) -> Handle:
    """Return a content of the store as what an application wrote to a data drop."""
    data = plans.store(row)
    if content.kind == "null" and data.unwritten is not None:
        return data.unwritten
    writer = data.part(slot)
    try:
        if content.kind in ("file", "directory"):
            store.place(content, writer.path())
        elif content.kind != "null":
            writer.write(store.body(content), text=content.text)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise
