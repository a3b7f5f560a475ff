"""Root causes that read the same, as one: what forty instances of one node say is one thing to know."""

import hashlib
from collections.abc import Sequence

import msgspec

from dropflow.rest.schema import FailureInfo

__all__ = ["Cause", "causes"]


class Cause(msgspec.Struct, frozen=True):
    """Failures of one logical node with the same words.

    Attributes
    ----------
    first : FailureInfo
        The most harmful of them; it stands for all.
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
        """What tells it from other causes on a page, and stays when more failures join it."""
        return hashlib.blake2b(repr(_words(self.first)).encode(errors="replace"), digest_size=8).hexdigest()


def causes(failures: Sequence[FailureInfo]) -> tuple[Cause, ...]:
    """`failures` by what they say, the most harmful first; within a cause their order is kept."""
    alike: dict[tuple[str, ...], list[FailureInfo]] = {}
    for failure in failures:
        alike.setdefault(_words(failure), []).append(failure)
    found = [
        Cause(first, tuple(rest), first.count + sum(failure.count for failure in rest))
        for first, *rest in alike.values()
    ]
    return tuple(sorted(found, key=lambda cause: -cause.count))


def _words(failure: FailureInfo) -> tuple[str, ...]:
    # A lost node is a cause of its own, whatever it says.
    place = failure.node if not failure.drop else ""
    return (failure.name, failure.code, failure.kind, failure.text, failure.hint, place)
