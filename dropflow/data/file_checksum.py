"""The checksum of a file. Commands compare files with it, so this module imports nothing large."""

import zlib

__all__ = ["checksum_of"]

_BLOCK = 1 << 20


def checksum_of(path: str) -> int:
    """Return the CRC-32 of a regular file, read in blocks."""
    checksum = 0
    with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 - text, once a file
        while block := stream.read(_BLOCK):
            checksum = zlib.crc32(block, checksum)
    return checksum
