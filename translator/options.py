"""Options of each stage of a translation, one frozen struct a stage; flags and REST fields derive from them."""

import msgspec

__all__ = ["PartitionOptions"]


class PartitionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a physical graph is partitioned.

    Attributes
    ----------
    algorithm : str
        ``metis``, ``blocks`` or ``none``.
    parts : int
        Number of parts, at least 1.
    imbalance : float
        Percentage by which the most loaded part may exceed the mean.
    seed : int
        Makes random choices repeatable.
    """

    algorithm: str = "metis"
    parts: int = 1
    imbalance: float = 1.0
    seed: int = 0
