"""Where the contents that workers of an engine send are written before they are committed."""

from typing import Protocol

__all__ = ["FetchedParts"]


class FetchedParts(Protocol):
    """Temporary places for contents of other hosts. Called from any thread."""

    def path(self, drop: int, attempt: int, number: int, final: str) -> str:
        """Return a new temporary path for a content that is `final` after its commit; that may be empty.

        Raises
        ------
        DropflowError
            Nothing can be written there.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove what was written there; never raises."""
        ...
