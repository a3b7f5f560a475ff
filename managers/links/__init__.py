"""Links between processes: numbered messages that arrive once and in order, and the data plane beside them.

Read `wire` first (how messages become packets), then `outbound` and `inbound` (the two ends of a link as pure state
machines); `sockets` is where they meet ZeroMQ, `memory` where they meet a fake wire for tests. `fetching` and
`serving` are the two ends of the data plane. docs/adr/0005-links.md says why it is built this way.
"""

from managers.links.actions import LinkChange, LinkEvent, ReceivedMessage
from managers.links.content_server import BufferSource, ContentSource, FileSource
from managers.links.links import Links
from managers.links.settings import LinkSettings
from managers.links.statistics import LinkStatistics, PeerStatistics
from managers.links.transfer import Sink, TransferResult

__all__ = [
    "BufferSource",
    "ContentSource",
    "FileSource",
    "LinkChange",
    "LinkEvent",
    "LinkSettings",
    "LinkStatistics",
    "Links",
    "PeerStatistics",
    "ReceivedMessage",
    "Sink",
    "TransferResult",
]
