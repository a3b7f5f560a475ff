"""Messages of other nodes about drops, sorted by the view of the session that they belong to."""

import threading

from managers.messages import Events
from managers.node.exchange import NodeExchange

__all__ = ["ViewEvents"]


class ViewEvents:
    """Passes on messages in the order of their senders: those of the present view, and later ones when it has come.

    Parameters
    ----------
    exchange : NodeExchange
        In the first view.
    """

    def __init__(self, exchange: NodeExchange) -> None:
        self._exchange = exchange
        self._view = exchange.view
        self._is_silent = False
        self._early: list[tuple[str, Events]] = []
        # Guards all of the above: the links' thread adds messages while a job changes the view. A queue would not do,
        # since the messages of a node must be passed on in their order.
        self._lock = threading.Lock()

    def receive(self, peer: str, events: Events) -> None:
        """Pass on a message. Those of earlier views are ignored."""
        with self._lock:
            self._pass_on(peer, events)

    def silence(self) -> None:
        """Have the other nodes not be told how the session ends here: they go on without this node."""
        with self._lock:
            self._is_silent = True
            self._exchange.silence()

    def next_view(self, number: int, exchange: NodeExchange) -> None:
        """Continue in a later view."""
        with self._lock:
            self._view, self._exchange = number, exchange
            if self._is_silent:
                exchange.silence()
            early, self._early = self._early, []
            for peer, events in early:
                self._pass_on(peer, events)

    def _pass_on(self, peer: str, events: Events) -> None:
        if events.view == self._view:
            self._exchange.receive(peer, events)
        elif events.view > self._view:
            self._early.append((peer, events))
