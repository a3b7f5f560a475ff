"""Children that zeroconf finds: those with the same cluster key, as they come and go."""

import logging

from dropflow.errors import DropflowError
from managers.composite.manager import Composite
from managers.discovery import Announcement, Discovery

__all__ = ["discover_children"]

_LOG = logging.getLogger("dropflow.composite")


def discover_children(composite: Composite, discovery: Discovery) -> None:
    """Let `composite` take what `discovery` finds: an island nodes, a master islands; until `discovery` is closed."""
    own = composite.info()

    def joined(found: Announcement) -> None:
        if found.key != own.key:
            _LOG.info("%s %s at %s has another cluster key", found.role, found.name, found.url)
            return
        try:
            composite.add_child(found.url)
        except DropflowError as error:
            _LOG.warning("%s %s was found but not added: %s", found.role, found.name, error)
        else:
            _LOG.info("%s %s at %s has joined", found.role, found.name, found.url)

    def left(found: Announcement) -> None:
        if found.key == own.key:
            composite.child_left(found.url)

    discovery.browse("island" if own.role == "master" else "node", joined, left)
