"""Groups root causes with the same text: the same failure of forty instances is shown once."""

import hashlib
from collections.abc import Sequence

import msgspec

from dropflow.rest.schema import FailureInfo

__all__ = ["Cause", "causes"]


class Cause(msgspec.Struct, frozen=True):
    """Failures of one logical node with the same text.

    Attributes
    ----------
    first : FailureInfo
        The most harmful of them, which is shown.
    rest : tuple of FailureInfo
        The others.
    count : int
        Drops in error because of any of them.
    """

    first: FailureInfo
    rest: tuple[FailureInfo, ...]
    count: int

    @property
    def row(self) -> str:
        """Identifies the cause on a page, and does not change when more failures are added."""
        return hashlib.blake2b(repr(_words(self.first)).encode(errors="replace"), digest_size=8).hexdigest()


def causes(failures: Sequence[FailureInfo]) -> tuple[Cause, ...]:
    """Return `failures` grouped by their text, the most harmful group first; within a group their order is kept."""
    alike: dict[tuple[str, ...], list[FailureInfo]] = {}
    for failure in failures:
        alike.setdefault(_words(failure), []).append(failure)
    found = [
        Cause(first, tuple(rest), first.count + sum(failure.count for failure in rest))
        for first, *rest in alike.values()
    ]
    return tuple(sorted(found, key=lambda cause: -cause.count))


def _words(failure: FailureInfo) -> tuple[str, ...]:
    # Each lost node is a separate cause, even with the same text.
    place = failure.node if not failure.drop else ""
    return (failure.name, failure.code, failure.kind, failure.text, failure.hint, place)
