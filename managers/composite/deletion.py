"""Sessions that are to be deleted on children that did not answer: they are, when these children answer again."""

__all__ = ["PendingDeletions"]

_REMEMBERED = 10_000


class PendingDeletions:
    """The newest deployment that is to be deleted, by session and child, for as long as this process lives.

    Older deployments under the same name are to be deleted with it.
    """

    def __init__(self) -> None:
        self._epochs: dict[tuple[str, str], int] = {}

    def add(self, session: str, url: str, epoch: int) -> None:
        """Note that this deployment of a session, and those before, are to be deleted on a child."""
        self._epochs[session, url] = epoch
        while len(self._epochs) > _REMEMBERED:
            del self._epochs[next(iter(self._epochs))]

    def has(self, session: str, url: str, epoch: int) -> bool:
        """Whether this deployment of a session is to be deleted on a child."""
        return epoch <= self._epochs.get((session, url), -1)

    def epoch_of(self, session: str) -> int:
        """Return the newest deployment of a session that is to be deleted on a child; 0 if there is none."""
        return max((epoch for (name, _), epoch in self._epochs.items() if name == session), default=0)

    def forget_child(self, url: str) -> None:
        """Remove what was to be deleted on a child that was removed."""
        self._epochs = {key: epoch for key, epoch in self._epochs.items() if key[1] != url}
