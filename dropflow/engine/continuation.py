"""With what a session continues that an earlier process began."""

from collections.abc import Mapping
from dataclasses import dataclass

from dropflow.engine.api import Handle
from dropflow.engine.events import KnownStates
from dropflow.failure import Failure

__all__ = ["Continuation"]


@dataclass(frozen=True)
class Continuation:
    """What a session takes over from its earlier process.

    Attributes
    ----------
    known : KnownStates
        The states of its drops.
    contents : mapping of int to Handle
        Contents that are still there, by drop, in the order of their commits.
    failures : mapping of int to Failure
        Why the drops in ERROR failed that started an error.
    """

    known: KnownStates
    contents: Mapping[int, Handle]
    failures: Mapping[int, Failure]
