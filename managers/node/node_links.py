"""The interface that a session's exchange requires of links: `managers.links.Links`, or simulated ones."""

from collections.abc import Callable
from typing import Protocol

from managers.messages import Message

__all__ = ["NodeLinks"]


class NodeLinks(Protocol):
    """Links to other nodes."""

    def send(self, peer: str, message: Message, *, urgent: bool) -> None:
        """Queue a message; an `urgent` one without waiting for room."""
        ...

    def has_room(self, peer: str) -> bool:
        """Whether `peer` has no more unprocessed data than its window."""
        ...

    def wait_for_room(self, peer: str, *, give_up: Callable[[], bool]) -> None:
        """Wait until `has_room`; `give_up` is evaluated again after each `wake_waiting`."""
        ...

    def wake_waiting(self) -> None:
        """Make everything that waits evaluate `give_up` again."""
        ...

    def content_grew(self, session: str, drop: int) -> None:
        """Answer the peers that wait for content that has grown, or ended."""
        ...

    def close_content(self, session: str, drop: int | None = None) -> None:
        """Close content that was released or replaced."""
        ...
