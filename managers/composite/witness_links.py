"""The links of an island or master, over which it votes about the views of sessions."""

import logging
from collections.abc import Callable
from typing import Any

from dropflow.clock import Clock
from dropflow.errors import LinkError, UsageError
from managers.composite.witness import SendVote, VoterSent, WitnessListens
from managers.deployment import Place
from managers.keys import ClusterKey
from managers.links import Links, ReceivedMessage
from managers.messages import PartDone, SessionDone, ViewMessage

__all__ = ["WitnessLinks"]

_log = logging.getLogger(__name__)


class WitnessLinks:
    """Passes votes between the nodes and the machine of a composite.

    Parameters
    ----------
    name : str
        Of the composite.
    clock : Clock
        Time.
    """

    def __init__(self, name: str, *, clock: Clock) -> None:
        # A node may have the name of the composite, and links are known by name.
        self._name = f"{name} (witness)"
        self._clock = clock
        self._links: Links | None = None

    def listen(self, bind: str, advertise: str, key: ClusterKey | None, *, post: Callable[[object], None]) -> None:
        """Listen to nodes, and give the machine its place and their messages by `post`.

        Raises
        ------
        UsageError
            The address is malformed, or leaves this host without a key.
        LinkError
            The address cannot be listened on.
        """

        def on_message(received: ReceivedMessage) -> None:
            message = received.message
            if isinstance(message, ViewMessage | PartDone | SessionDone):
                post(VoterSent(received.peer, received.incarnation, message))

        self._links = links = Links(
            self._name, bind=bind, advertise=advertise, key=key, on_message=on_message, clock=self._clock
        )
        post(WitnessListens(Place(self._name, links.address, links.incarnation)))

    def effects(self) -> dict[type, Callable[[Any], None]]:
        """Return what carries out the actions of each type."""
        return {SendVote: self._send}

    def close(self) -> None:
        """Close the links. Idempotent."""
        if self._links is not None:
            self._links.close()

    def _send(self, action: SendVote) -> None:
        if self._links is None:
            return
        try:
            self._links.send(action.peer, action.message, urgent=True)
        except (LinkError, UsageError) as error:
            _log.info("node %s could not be sent a vote: %s", action.peer, error)
