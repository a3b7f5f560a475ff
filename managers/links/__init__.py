"""Links between processes: numbered messages that arrive once and in order, and the data plane beside them.

Read `packing` first (how messages become packets), then `outbound`, `inbound` and `transfer` (pure state machines),
which `link_manager` combines. `link_driver` carries out what they decide; `links` runs it in a thread over
`zmq_transport`, and `managers.simulation` on virtual time over a simulated network. docs/adr/0005-links.md has the
reasons.
"""

from managers.links.actions import LinkChange, LinkEvent, ReceivedMessage
from managers.links.content_source import BufferSource, ContentSource, FileSource
from managers.links.links import Links
from managers.links.settings import LinkSettings
from managers.links.statistics import LinkStatistics, PeerStatistics
from managers.links.transfer import Sink, TransferResult, WantedContent

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
    "WantedContent",
]
