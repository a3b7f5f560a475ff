"""Options of each stage of a translation, one frozen struct a stage; flags and REST fields derive from them."""

from typing import Literal

import msgspec

__all__ = ["ComponentOptions", "PartitionOptions", "ReadOptions", "UnrollOptions", "ValidateOptions"]


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a file may be like that is read as a logical graph.

    Attributes
    ----------
    max_bytes : int
        A longer document is refused before it is looked at.
    max_depth : int
        A document whose lists and objects are nested deeper is refused before it is parsed.
    max_findings : int
        How many findings about the structure of one document are listed; the others are counted.
    """

    max_bytes: int = 256 * 1024 * 1024
    max_depth: int = 200
    max_findings: int = 100


class ValidateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a logical graph is checked.

    Attributes
    ----------
    max_findings : int
        How many findings of one graph are listed.
    """

    max_findings: int = 1000


class ComponentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the components of a graph are judged: classes, parameters and functions, without running any of them.

    Attributes
    ----------
    missing_here : str
        What a module or variable that this host lacks is: an ``error`` where the graph is to run here, a ``warning``
        where it may run on other hosts, ``ignored`` where those hosts are asked next.
    """

    missing_here: Literal["error", "warning", "ignored"] = "error"


class UnrollOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a logical graph becomes a physical one.

    Attributes
    ----------
    prefix : str
        First part of every text id; empty for the name of the graph, made safe. Never a time or a random number.
    max_drops, max_edges : int
        A graph that would become larger is refused by prediction, before memory is touched.
    adapters : bool
        Whether an edge between two nodes of the same kind gets a drop in between; otherwise it is an error.
    zip_scatters : bool
        Whether two scatters of equal size may be linked copy by copy.
    rehearsal : bool
        Whether placeholders stand for all applications and data; see `translator.rehearsal`. Physical graphs, too.
    loop_aware : str
        ``all``: a loop-aware edge is restricted in every loop it crosses; ``innermost``: only in a loop that is the
        direct parent of its end, as DALiuGE 6.7 does.
    """

    prefix: str = ""
    max_drops: int = 20_000_000
    max_edges: int = 100_000_000
    adapters: bool = True
    zip_scatters: bool = False
    rehearsal: bool = False
    loop_aware: Literal["all", "innermost"] = "all"


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
