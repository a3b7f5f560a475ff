"""When a pool asks a batch system for nodes and gives them back, without I/O: `decide` gets what was seen.

An allocation is one job with one node. It is *asked* for until its node is alive, then *up*, and *leaving* once it is
drained. A pool asks for one allocation at a time, and only while work is ready that no worker takes: the nodes that
answer all work. An allocation that is about to reach its walltime counts no more, so that another one replaces it.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from managers.jobs.batch import JobState

_MOST_FAILED = 3
"""Jobs in a row that ended without a node; then the pool pauses."""
_MOST_REFUSED = 10
"""Requests in a row that the batch system refused; then the pool pauses."""
_START_SECONDS = 300.0
"""Seconds that a job may run before its node is alive."""
_END_SECONDS = 30.0
"""Seconds, besides the margin, that a node that leaves may take."""


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a pool decides.

    Attributes
    ----------
    least, most : int
        How many nodes it keeps, and may have.
    idle : float
        Seconds after which a node without work is given back.
    seconds : float
        Walltime of an allocation.
    margin : float
        How many seconds before the walltime a node leaves, and how long it may take for that.
    every : float
        The batch system is asked for states, and for a node, at most once in so many seconds.
    """

    least: int
    most: int
    idle: float
    seconds: float
    margin: float
    every: float


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """A job with one node. Times are in seconds since the epoch; 0 if it has not happened.

    Attributes
    ----------
    asked, started, up, idle, leaving : float
        When it was submitted, was seen running, its node was alive, had nothing to do, and began to leave.
    """

    job: str
    asked: float
    started: float = 0.0
    up: float = 0.0
    idle: float = 0.0
    leaving: float = 0.0


class PoolState(msgspec.Struct, frozen=True, kw_only=True):
    """The allocations of a pool, and why it asks for no more.

    Attributes
    ----------
    paused : str
        The reason; empty if it is not paused.
    failed, refused : int
        Allocations in a row that ended before their nodes were alive, or that the batch system refused.
    next : float
        When it may ask for a node again.
    """

    allocations: tuple[Allocation, ...] = ()
    paused: str = ""
    failed: int = 0
    refused: int = 0
    next: float = 0.0


class Seen(NamedTuple):
    """The observations of a pool at one time.

    Attributes
    ----------
    now : float
        Seconds since the epoch.
    waiting : int
        Attempts whose inputs are there, and that wait for a worker.
    running : mapping
        How many attempts the node of a job runs, of nodes that are alive.
    jobs : mapping or None
        States of jobs in the batch system; None if it was not asked.
    ends : bool
        Whether the pool is removed.
    """

    now: float
    waiting: int
    running: Mapping[str, int]
    jobs: Mapping[str, JobState] | None = None
    ends: bool = False


class PoolAction(NamedTuple):
    """Something to do: submit a job, drain the node of one, or cancel one."""

    kind: Literal["submit", "drain", "cancel"]
    job: str = ""


def decide(state: PoolState, settings: PoolSettings, seen: Seen) -> tuple[PoolState, list[PoolAction]]:
    """Return the next state, and what to do."""
    state = _without_ended(state, seen)
    allocations = [_updated(allocation, seen) for allocation in state.allocations]
    if any(new.up and not old.up for old, new in zip(state.allocations, allocations, strict=True)):
        state = msgspec.structs.replace(state, failed=0)
    actions = []
    staying = sum(not allocation.leaving for allocation in allocations)
    for number, allocation in enumerate(allocations):
        if allocation.leaving:
            if seen.jobs is not None and seen.now > allocation.leaving + settings.margin + _END_SECONDS:
                actions.append(PoolAction("cancel", allocation.job))
            continue
        is_idle = bool(allocation.idle) and seen.now >= allocation.idle + settings.idle and staying > settings.least
        is_late = bool(allocation.started) and not allocation.up and seen.now > allocation.started + _START_SECONDS
        if seen.ends or is_idle or is_late or _is_at_end(allocation, settings, seen.now, 1):
            actions.append(PoolAction("drain" if allocation.up else "cancel", allocation.job))
            allocations[number] = msgspec.structs.replace(allocation, leaving=seen.now)
            staying -= 1
    state = msgspec.structs.replace(state, allocations=tuple(allocations))
    if not seen.ends and _needs_node(state, settings, seen):
        actions.append(PoolAction("submit"))
        state = msgspec.structs.replace(state, next=seen.now + settings.every)
    return state, actions


def submitted(state: PoolState, job: str, now: float) -> PoolState:
    """Return the state after a job was submitted."""
    return msgspec.structs.replace(state, refused=0, allocations=(*state.allocations, Allocation(job=job, asked=now)))


def refused(state: PoolState, text: str) -> PoolState:
    """Return the state after the batch system refused a job."""
    count = state.refused + 1
    paused = f"{count} requests in a row were refused, the last one: {text}" if count >= _MOST_REFUSED else state.paused
    return msgspec.structs.replace(state, refused=count, paused=paused)


def _without_ended(state: PoolState, seen: Seen) -> PoolState:
    """Leave out allocations whose jobs have ended, and pause after several that never had a node."""
    if seen.jobs is None:
        return state
    kept, failed, paused = [], state.failed, state.paused
    for allocation in state.allocations:
        job = seen.jobs.get(allocation.job)
        if job is not None and not job.is_over:
            kept.append(
                msgspec.structs.replace(allocation, started=seen.now)
                if job.has_begun and not allocation.started
                else allocation
            )
        elif not allocation.up and not seen.ends and allocation.job not in seen.running:
            failed += 1
            if failed >= _MOST_FAILED:
                word = job.word if job is not None else "gone"
                paused = (
                    f"{failed} allocations in a row ended without a node, the last one, job {allocation.job}: {word}"
                )
    return msgspec.structs.replace(state, allocations=tuple(kept), failed=failed, paused=paused)


def _updated(allocation: Allocation, seen: Seen) -> Allocation:
    """Return an allocation with what its node does."""
    running = seen.running.get(allocation.job)
    if running is None:
        return msgspec.structs.replace(allocation, idle=0.0)
    has_work = running or seen.waiting
    return msgspec.structs.replace(
        allocation, up=allocation.up or seen.now, idle=0.0 if has_work else allocation.idle or seen.now
    )


def _is_at_end(allocation: Allocation, settings: PoolSettings, now: float, margins: int) -> bool:
    """Return whether the walltime of an allocation ends within so many margins."""
    began = allocation.started or allocation.up
    return bool(began and settings.seconds) and now >= began + settings.seconds - margins * settings.margin


def _needs_node(state: PoolState, settings: PoolSettings, seen: Seen) -> bool:
    """Return whether another node is worth its costs, and may be asked for now."""
    lasting = [
        allocation
        for allocation in state.allocations
        if not allocation.leaving and not _is_at_end(allocation, settings, seen.now, 2)
    ]
    if (
        state.paused
        or seen.now < state.next
        or len(lasting) >= settings.most
        or any(not allocation.up for allocation in lasting)
    ):
        return False
    # If none answers, the island may be silent, and what waits is not known.
    work = [seen.running[allocation.job] for allocation in lasting if allocation.job in seen.running]
    all_work = all(work) if work else not lasting
    are_ending = not lasting and any(seen.running.get(allocation.job) for allocation in state.allocations)
    return len(lasting) < settings.least or are_ending or (seen.waiting > 0 and all_work)
