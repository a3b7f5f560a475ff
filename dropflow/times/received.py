"""What a node received from other nodes of a session: counted by its data plane, kept in a file beside the times."""

from pathlib import Path

import msgspec

__all__ = ["RECEIVED_FILE", "NodeReceipts", "PeerReceipts", "read_receipts"]

RECEIVED_FILE = "received.json"


class PeerReceipts(msgspec.Struct, frozen=True, kw_only=True):
    """What came from one other node.

    Attributes
    ----------
    node : str
        The other node.
    contents, size : int
        Contents that were transferred to the end, and all bytes that were transferred, also of others.
    shared_contents, shared_size : int
        Contents that were read where they are, on a file system that both nodes see, and their bytes.
    """

    node: str
    contents: int = 0
    size: int = 0
    shared_contents: int = 0
    shared_size: int = 0


class NodeReceipts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node received from each of the others, by their names."""

    node: str = ""
    received: tuple[PeerReceipts, ...] = ()


def read_receipts(directory: Path) -> NodeReceipts:
    """Return what was kept in a session directory; nothing if there is no such file, or if it cannot be read."""
    try:
        return msgspec.json.decode((directory / RECEIVED_FILE).read_bytes(), type=NodeReceipts)
    except (OSError, msgspec.DecodeError):
        return NodeReceipts()
