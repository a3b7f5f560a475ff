"""The digest by which contents are compared between hosts."""

import hashlib

__all__ = ["digest"]


def digest() -> hashlib.blake2b:
    """Return a new BLAKE2b digest of 16 bytes."""
    return hashlib.blake2b(digest_size=16)
