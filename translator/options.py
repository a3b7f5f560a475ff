"""Options of each stage of a translation, one frozen struct for each; CLI options and REST fields derive from them."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dropflow.graph.drop_counts import MOST_PARTS

DEFAULT_ALGORITHM = "auto"
"""How graphs are partitioned, by commands, the Python interface, REST and pages, if nothing else is asked for."""

DEFAULT_IMBALANCE = 1.0
"""Percentage by which a part may exceed its share, under algorithms that balance."""


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on files that are read as logical graphs.

    Attributes
    ----------
    max_bytes : int
        A longer document is refused before it is read.
    max_depth : int
        A document whose lists and objects are nested deeper is refused before it is parsed.
    max_findings : int
        Number of findings about the structure of one document that are listed; the others are counted.
    """

    max_bytes: int = 256 * 1024 * 1024
    max_depth: int = 200
    max_findings: int = 100


class ValidateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a logical graph is checked.

    Attributes
    ----------
    max_findings : int
        Number of findings of one graph that are listed.
    """

    max_findings: int = 1000


class ComponentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the components of a graph are checked: classes, parameters and functions, without running any of them.

    Attributes
    ----------
    here : bool
        Whether the graph is to run on this host. Then what cannot run here is an error; otherwise it is a warning,
        because structure alone decides whether a graph can be translated, and its nodes judge what they are to run.
    """

    here: bool = False


class UnrollOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a logical graph becomes a physical one.

    Attributes
    ----------
    prefix : str
        First part of every text id; empty for the name of the graph, made safe for files. Ids are reproducible.
    max_drops, max_edges : int
        A graph that would become larger is refused before memory is allocated.
    adapters : bool
        Whether an adapter is inserted into an edge between two nodes of the same kind; otherwise it is an error.
    zip_scatters : bool
        Whether two scatters of equal size may be linked copy by copy.
    rehearsal : bool
        Whether all applications and data are replaced by placeholders, also in physical graphs; see
        `translator.pipeline`.
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


class PartitionOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a physical graph is partitioned.

    Flags of commands, fields of REST and notes of planned graphs are these. What has no flag comes from DALiuGE.

    Attributes
    ----------
    algorithm : str
        Name of an algorithm of `translator.plan.registry`, or of DALiuGE's for it.
    parts : int
        Number of parts, at least 1.
    imbalance : float or None
        Percentage by which the most loaded part may exceed its share, and the loads of any two islands may differ.
        None: 1 for algorithms that balance, and no limit for others; see `allowed_imbalance`.
    seed : int
        Seed of random choices.
    objective : str
        What ``auto`` looks for: the least completion time, the least movement within the imbalance, the fewest nodes
        within the deadline, or a balance of time and movement.
    dop : int
        Largest number of processors that the applications of a part use at a time; 0 for those of its node.
    deadline : float or None
        Seconds in which the graph has to complete.
    greediness : float
        Without a deadline, how little longer than the fastest plan one on fewer nodes may take: 100 for not at all, 0
        for twice as long.
    method : str
        Methods of METIS that are tried.
    goal : str
        What METIS is chosen by: the bytes that move, or the bytes of cut edges.
    steps : int
        Largest number of steps of the local search of ``auto``; -1 for as many as suit the size of the graph.
    memory : float
        Bytes of memory that the applications of a part may declare at a time, beside that of its node; 0 for no limit.
    islands : int
        Data islands that share the parts in blocks, if no machines are described.
    """

    algorithm: Annotated[
        str,
        Meta(
            max_length=40,
            description="auto, metis, kahypar, breadth_first, min_parts, heft, lookahead, blocks or none.",
            extra={"flag": "-a --algorithm", "type": "algorithm", "metavar": "NAME"},
        ),
    ] = DEFAULT_ALGORITHM
    parts: Annotated[int, Meta(ge=1, le=MOST_PARTS)] = 1
    imbalance: Annotated[
        Annotated[float, Meta(ge=0, le=1000)] | None,
        Meta(
            description="How much the load of a part may exceed its share, and the loads of two islands may differ; 1 "
            "for algorithms that balance, and no limit for the others, if it is not given.",
            extra={"flag": "-p --imbalance", "metavar": "PERCENT"},
        ),
    ] = None
    objective: Annotated[
        Literal["time", "movement", "nodes", "balanced"],
        Meta(description="What auto looks for.", extra={"flag": "--objective"}),
    ] = "time"
    dop: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="Largest number of processors that applications use at a time on the nodes of an island "
            "together, in the plan and when it runs; 0 for all they have.",
            extra={"flag": "--dop", "metavar": "N"},
        ),
    ] = 0
    deadline: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(
            description="Refuse plans that take longer; min_parts uses as few nodes as keep it.",
            extra={"flag": "--deadline", "type": "duration"},
        ),
    ] = None
    seed: Annotated[
        int,
        Meta(ge=0, le=2**31 - 1, description="Seed of random choices.", extra={"flag": "--seed", "metavar": "N"}),
    ] = 0
    greediness: Annotated[float, Meta(ge=0, le=100)] = 50.0
    method: Literal["best", "kway", "recursive"] = "best"
    goal: Literal["moved", "cut"] = "moved"
    steps: Annotated[int, Meta(ge=-1, le=100_000)] = -1
    memory: Annotated[float, Meta(ge=0)] = 0.0
    islands: Annotated[int, Meta(ge=1, le=10_000)] = 1

    @property
    def allowed_imbalance(self) -> float:
        """The imbalance for algorithms that balance, in percent."""
        return DEFAULT_IMBALANCE if self.imbalance is None else self.imbalance
