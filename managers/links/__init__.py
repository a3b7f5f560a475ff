"""Links between processes: numbered messages that arrive once and in order, and the data plane beside them.

`outbound`, `inbound` and `transfer` are pure state machines, which `link_manager` combines. `driver` carries out what
they decide, over ZeroMQ, or in `managers.simulation` on virtual time. docs/adr/0005-links.md has the reasons.

================  ======================================================================================================
`packing`         Messages to packets, and packets to messages
`outbound`        The sending end of a link to one peer, as a pure state machine
`inbound`         The receiving end of all links to one process, as a pure state machine
`transfer`        The requesting end of the data plane: transfers of the contents of drops, as pure state machines
`link_manager`    The state of all links of one process, as a pure state machine over `outbound`, `inbound` and
                  `transfer`
`actions`         The actions of the state machines of links, as frozen data; a `LinkDriver` carries them out
`driver`          Carries out what a `LinkManager` decides: over a transport, and towards senders and receivers
`zmq_transport`   The transport of the product: all ZeroMQ sockets of a process, owned by one thread
`content_server`  The answering end of the data plane: reads the contents that peers request, in its own thread
`send_window`     Flow control of messages: senders wait here while a peer has too much unprocessed data
`link_settings`   Settings of links: times and sizes
`links`           `Links`: the links of one process over ZeroMQ
`probes`          Probes of link addresses: which process listens there
================  ======================================================================================================
"""

from managers.links.actions import LinkChange, LinkEvent, LinkStatistics, PeerStatistics, ReceivedMessage
from managers.links.content_server import BufferSource, ContentSource, FileSource
from managers.links.link_settings import LinkSettings
from managers.links.links import Links
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
