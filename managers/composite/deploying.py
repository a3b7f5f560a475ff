"""Putting a graph on its nodes in two steps: everybody prepares, then everybody starts; or nobody does.

A composite deploys to its children, a node manager to itself, both by `deploy`. Until all have prepared nothing runs.
As soon as one fails, or when one does not answer by the deadline, the others are undone, and so is the one that failed:
it may only have been slow.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dropflow.clock import Clock
from dropflow.errors import BadGraphError, DropflowError, WorldError
from dropflow.rest.error_body import HttpError
from managers.composite.fanout import Fanout, Outcome
from managers.deployment import Deployment, subset

__all__ = ["Deployable", "Target", "deploy", "failed", "prepare_all", "start_all", "undo_all"]

_LOG = logging.getLogger("dropflow.composite")
_UNDO_SECONDS = 10.0
_GRACE = 0.5
"""Seconds that the others have after one has failed, so that all that is wrong is told at once."""


class Deployable(Protocol):
    """The part of `managers.api.Manager` that deploying needs."""

    def prepare(self, deployment: Deployment, *, seconds: float) -> None:
        """See `managers.api.Manager.prepare`."""
        ...

    def start(self, session: str, epoch: int) -> None:
        """See `managers.api.Manager.start`."""
        ...

    def undo(self, session: str, epoch: int, reason: str) -> None:
        """See `managers.api.Manager.undo`."""
        ...


@dataclass(frozen=True)
class Target:
    """A manager to deploy to, under the name that people know it by, and which nodes it answers for."""

    name: str
    manager: Deployable
    nodes: tuple[str, ...]


def deploy(deployment: Deployment, targets: Sequence[Target], fanout: Fanout, *, seconds: float, clock: Clock) -> None:
    """Prepare `deployment` everywhere, then start it everywhere; both within `seconds`.

    Raises
    ------
    DropflowError
        The error of the target that failed, of its class, naming it; several failures are all named. Nothing runs then,
        but for targets that could not be undone, which are named too.
    """
    deadline = clock.monotonic() + seconds
    session, epoch = deployment.session, deployment.epoch
    step, outcomes = "prepare", prepare_all(deployment, targets, fanout, seconds=seconds)
    if not _errors(outcomes):
        step = "start"
        left = max(deadline - clock.monotonic(), 1.0)
        outcomes = start_all(session, epoch, targets, fanout, seconds=left)
    errors = _errors(outcomes)
    if not errors:
        return
    error = failed(errors, f"could not {step} session {session!r}")
    _LOG.warning("session %s is undone everywhere: %s", session, error)
    stuck = undo_all(session, epoch, targets, fanout, reason=str(error))
    stuck = {name: why for name, why in stuck.items() if name not in errors}
    error.add_note(f"undone on {', '.join(target.name for target in targets if target.name not in stuck)}")
    if stuck:
        left_over = ", ".join(f"{name} ({why.text})" for name, why in stuck.items())
        error.hint = f"{error.hint}; it could not be undone on {left_over}: delete the session there".lstrip("; ")
    raise error


def prepare_all(
    deployment: Deployment, targets: Sequence[Target], fanout: Fanout, *, seconds: float
) -> dict[str, Outcome[None]]:
    """Give each target its part of `deployment`, until one fails; what became of it, by the target's name."""

    def call(target: Target) -> None:
        target.manager.prepare(subset(deployment, target.nodes), seconds=seconds)

    return _all(call, targets, fanout, seconds, grace=_GRACE)


def start_all(
    session: str, epoch: int, targets: Sequence[Target], fanout: Fanout, *, seconds: float
) -> dict[str, Outcome[None]]:
    """Start what was prepared on every target; what became of it, by the target's name."""
    return _all(lambda target: target.manager.start(session, epoch), targets, fanout, seconds)


def undo_all(
    session: str, epoch: int, targets: Sequence[Target], fanout: Fanout, *, reason: str
) -> dict[str, DropflowError]:
    """Take a deployment back from every target; the errors of those where that failed, by the target's name."""
    return _errors(_all(lambda target: target.manager.undo(session, epoch, reason), targets, fanout, _UNDO_SECONDS))


def failed(errors: Mapping[str, DropflowError], doing: str) -> DropflowError:
    """One error for those of several targets: of the class of the first, naming all.

    Parameters
    ----------
    errors : mapping
        By the name of the target; at least one. Those that cannot be helped by trying again come first.
    doing : str
        What the targets could not do, after their name.
    """
    ordered = sorted(errors.items(), key=lambda item: (item[1].retryable, item[0]))
    name, first = ordered[0]
    others = [f"{other}: {error.text}" for other, error in ordered[1:]]
    text = "; ".join([f"{name} {doing}: {first.text}", *others])
    hint = first.hint or (f"look at the log of {name}, and submit again" if first.retryable else "")
    where = f"{name}: {first.where}" if first.where else name
    if isinstance(first, BadGraphError):
        error: DropflowError = BadGraphError(text, problems=first.problems, where=where, hint=hint)
    elif isinstance(first, HttpError):
        # A status of a child is no status of ours: 401 there does not mean that our caller lacks a token.
        error = WorldError(text, where=where, hint=hint)
    else:
        error = type(first)(text, where=where, hint=hint)
    error.__cause__ = first
    return error


def _all(
    call: Callable[[Target], None],
    targets: Sequence[Target],
    fanout: Fanout,
    seconds: float,
    *,
    grace: float | None = None,
) -> dict[str, Outcome[None]]:
    def bound(target: Target) -> Callable[[], None]:
        return lambda: call(target)

    calls = {target.name: bound(target) for target in targets}
    return fanout.ask(calls, seconds=seconds, grace=grace)


def _errors(outcomes: Mapping[str, Outcome[None]]) -> dict[str, DropflowError]:
    return {name: outcome.error for name, outcome in outcomes.items() if outcome.error is not None}
