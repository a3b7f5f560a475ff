"""The records of statistics of attempts, which managers send and commands and pages show."""

import msgspec


class NodeProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The attempts of one logical node.

    Attributes
    ----------
    name, key, category : str
        The node.
    attempts, failed : int
        How many attempts ended, and how many of them failed.
    seconds : float
        How long all ran together.
    median, p95, longest : float
        Seconds that one ran.
    waited : float
        Median of the seconds from when an attempt could begin until it was given to the runner.
    queued : float
        Median of the seconds from then until it began.
    waited_p95 : float
        95th percentile of both together.
    planned : float
        Seconds that the graph declares for one; 0 if it declares none.
    processor : float
        Processor seconds of all.
    memory : int
        Largest resident memory of a process meanwhile, in bytes; 0 if it is not known.
    read, written : int
        Bytes of all inputs and outputs.
    """

    name: str
    key: str
    category: str
    attempts: int
    failed: int
    seconds: float
    median: float
    p95: float
    longest: float
    waited: float
    queued: float = 0.0
    waited_p95: float = 0.0
    planned: float = 0.0
    processor: float
    memory: int
    read: int
    written: int


class AttemptProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that has ended, or that runs.

    Attributes
    ----------
    drop : str
        Text id.
    attempt : int
        Its number.
    failed : bool
    waited : float
        Seconds from when it could begin until it began.
    ran : float
        Seconds that it ran, until now if it runs.
    began : float
        When it began, in seconds since the epoch.
    name : str
        Name of its logical node.
    row : int
        Row of the drop in the whole graph.
    node : str
        Where it ran; empty if that is known from the context.
    worker : int
        Number of its worker process on its node; 0 for none.
    processor : float
        Processor seconds, of its child processes too; 0 while it runs.
    memory : int
        Largest resident memory of its process meanwhile, in bytes; 0 if it is not known.
    read, written : int
        Bytes of its inputs and outputs.
    is_running : bool
    """

    drop: str
    attempt: int
    failed: bool = False
    waited: float
    ran: float
    began: float
    name: str = ""
    row: int = -1
    node: str = ""
    worker: int = 0
    processor: float = 0.0
    memory: int = 0
    read: int = 0
    written: int = 0
    is_running: bool = False


class CriticalStep(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of the critical path.

    Attributes
    ----------
    drop, name, node : str
        Text id of the drop, its logical node, and where it ran.
    attempt : int
        Its number.
    waited_for : str
        ``beginning``, ``data``, ``repetition`` or ``worker``: what happened last before it could begin.
    waited : float
        Seconds from then until it began.
    moved : float
        How many of these passed until it was ready: its data moved to its node, or a message was on its way. It waited
        for a worker during the others.
    ran : float
        Seconds that it ran.
    began : float
        Seconds since the epoch.
    row : int
        Row of the drop in the whole graph.
    """

    drop: str
    name: str
    node: str
    attempt: int
    waited_for: str
    waited: float
    moved: float = 0.0
    ran: float
    began: float
    row: int = -1


class LaneUse(msgspec.Struct, frozen=True, kw_only=True):
    """How one lane was used: seconds that it was busy, and idle, by what it waited for.

    Attributes
    ----------
    node : str
    lane : str
        Its name on the node.
    attempts : int
    busy : float
    data, message, worker : float
        Idle before an attempt, waiting for its data, for a message, and for a worker.
    rest : float
        Idle after the last attempt, until the session ended.
    late : float or None
        How much later its last attempt ended than the last of its attempts was to end in the plan; None without a plan.
    """

    node: str
    lane: str
    attempts: int
    busy: float
    data: float
    message: float
    worker: float
    rest: float
    late: float | None = None


class NodeTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """The contents and bytes that were moved from one node to another, as the other one counted them.

    Attributes
    ----------
    source, target : str
        The nodes.
    size, contents : int
        Bytes that were transferred, and contents that were transferred to the end.
    shared_size, shared_contents : int
        Bytes and contents that were read where they are, on a file system that both nodes see.
    planned : int
        Bytes that the plan moves, if the graph declares volumes.
    """

    source: str
    target: str
    size: int = 0
    contents: int = 0
    shared_size: int = 0
    shared_contents: int = 0
    planned: int = 0

    @property
    def total(self) -> int:
        """Bytes that were transferred, and those that were read where they are."""
        return self.size + self.shared_size


class TimesStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of the attempts of a session.

    Attributes
    ----------
    attempts, failed : int
    began, ended : float
        When the first attempt was ready, and the last one was committed; seconds since the epoch.
    templates : tuple of NodeProfile
        By logical node, those that took most together first.
    slowest : tuple of AttemptProfile
    critical : tuple of CriticalStep
        The critical path as executed, the longest steps of it in the order of time.
    critical_steps : int
        Attempts on all of it.
    critical_ran, critical_waited, critical_moved : float
        Seconds that these ran, waited, and waited until they were ready.
    lanes : tuple of LaneUse
    traffic : tuple of NodeTraffic
        Between each two nodes, most bytes first; empty if nothing was to be moved.
    missing : tuple of str
        Nodes that did not answer.
    uncounted : tuple of str
        Nodes that received contents which `traffic` may lack: they were lost, or did not answer.
    """

    attempts: int
    failed: int
    began: float
    ended: float
    templates: tuple[NodeProfile, ...]
    slowest: tuple[AttemptProfile, ...]
    critical: tuple[CriticalStep, ...]
    critical_steps: int
    critical_ran: float
    critical_waited: float
    critical_moved: float = 0.0
    lanes: tuple[LaneUse, ...]
    traffic: tuple[NodeTraffic, ...] = ()
    missing: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()


NO_TIMES = TimesStatistics(
    attempts=0,
    failed=0,
    began=0.0,
    ended=0.0,
    templates=(),
    slowest=(),
    critical=(),
    critical_steps=0,
    critical_ran=0.0,
    critical_waited=0.0,
    lanes=(),
)
"""Statistics of no attempts."""
