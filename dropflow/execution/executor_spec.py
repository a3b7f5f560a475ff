"""The specification from which any process builds an executor, and how it takes results of earlier runs."""

from collections.abc import Mapping

import msgspec

from dropflow.execution.drop_log import LOG_LIMIT
from dropflow.graph.templates import Link, Template


class KeyPart(msgspec.Struct, frozen=True, array_like=True):
    """One dependency of the results of an application, for its key and for people.

    Attributes
    ----------
    kind : str
        Such as ``parameter``, ``function``, ``module``, ``package`` or ``input``.
    name, value : str
        Its name, and its value, version or digest.
    detail : str
        Digest of a source in the store, so that changed lines can be shown; empty for other kinds.
    type : str
        Type of a parameter: 1 and "1" are the same `value`.
    """

    kind: str
    name: str
    value: str
    detail: str = ""
    type: str = ""

    @property
    def counted(self) -> tuple[str, ...]:
        """The parts of it that are in a key: not the source of code, so that a comment does not count."""
        return self.kind, self.name, self.value, self.type


class ReuseSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How the attempts of a session take results from the store, and put theirs there; see `dropflow.reuse`.

    Attributes
    ----------
    store : str
        Directory of the store.
    graph : str
        Name of the graph.
    nodes : tuple of (tuple of KeyPart) or None
        Dependencies of the results of each template, besides their inputs; None if they are not reused.
    always_run : mapping of int to str
        By template: why its results are never reused, although its key parts are known.
    keys : str
        File with the keys that were known before anything ran, one row for each drop, and the digests of inputs from
        outside; empty if there is none. It is removed when such an input has changed.
    log : str
        File that names the drops whose results were taken.
    verify : float
        Share of the results that are computed again, and compared, 0 to 1.
    trust_times : bool
        Whether a file outside of the session counts as unchanged if its size and time are unchanged.
    """

    store: str
    graph: str
    nodes: tuple[tuple[KeyPart, ...] | None, ...]
    always_run: Mapping[int, str] = {}
    keys: str = ""
    log: str = ""
    verify: float = 0.0
    trust_times: bool = False


class ExecutorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The specification from which any process builds an executor; sent once, not per task.

    Attributes
    ----------
    session : str
        Session id.
    directory : str
        Absolute path of the session directory. Under it: ``files/`` (relative file drops; working directory of
        commands), ``logs/<oid>.log``, ``results/``, ``tmp/`` (uncommitted parts).
    folder : str
        Absolute path of the working directory of worker processes; ``files/`` if it is empty.
    templates, links : tuples
        Templates and links of the physical graph.
    prefix : str
        Prefix of the physical graph.
    log_limit : int
        Bytes kept of the output of one drop.
    durable : bool
        Whether files are forced to the disk before they are committed.
    until : float
        Walltime, in seconds since the epoch: attempts that cannot end by then are not started. 0 for none.
    tag : str
        Text in the names of uncommitted parts; each process that works in the directory has its own.
    is_detached : bool
        Whether contents are committed on another host, so that all uncommitted parts are in ``tmp``.
    reuse : ReuseSpec or None
        How results of earlier runs are reused; None if they are not.
    retry_memory : float
        Factor by which the memory of a drop grows when an attempt had too little and is repeated; 0 for no repetition.
    report_locals : bool
        Whether failures have the local variables of the function that raised.
    """

    session: str
    directory: str
    templates: tuple[Template, ...]
    links: tuple[Link, ...]
    prefix: str = ""
    folder: str = ""
    log_limit: int = LOG_LIMIT
    durable: bool = False
    until: float = 0.0
    tag: str = ""
    is_detached: bool = False
    reuse: ReuseSpec | None = None
    retry_memory: float = 0.0
    report_locals: bool = False
