"""How a session runs: one record of options for this machine, and one for the nodes of a manager.

Flags of commands, the query of a submission, the note in the graph of a session and the form of a page follow from
these fields: each has its bounds, a description, its flag, and a title for forms. Clients import this module, so it
loads no libraries.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, get_args, get_origin

import msgspec
from msgspec import Meta

from dropflow.errors import UsageError

_MEANINGS = ("gt", "ge", "le", "title", "description", "extra")


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options that can be chosen wherever a session runs."""

    until: Annotated[
        float,
        Meta(
            ge=0,
            title="Start nothing that cannot end by, UTC",
            description="Start nothing that cannot end by then, by the execution_time of its node: 02:30, 3600s, 2h, "
            "or an ISO time.",
            extra={"flag": "--until", "type": "walltime"},
        ),
    ] = 0.0
    """Walltime, in seconds since the epoch; the session stops when the rest has ended. 0 for none."""
    infrastructure_retries: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            title="Repeats after a worker died",
            description="How often an attempt of a drop is repeated because its worker process died; n_tries counts "
            "other failures.",
            extra={"flag": "--infrastructure-retries", "metavar": "N"},
        ),
    ] = 5
    retry_memory: Annotated[
        float,
        Meta(
            ge=0.0,
            le=1000.0,
            title="More memory after too little, times",
            description="Repeat an attempt that had too little memory with so many times as much, such as 2x, up to "
            "what a node may use.",
            extra={"flag": "--retry-memory", "type": "factor"},
        ),
    ] = 0.0
    """0 for no such repeats. They count as --infrastructure-retries."""
    check: Annotated[
        bool,
        Meta(
            title="Check all state after every step (slow)",
            description="Check all state of the session after every step; slow.",
            extra={"flag": "--check/--no-check"},
        ),
    ] = False
    reuse: Annotated[
        bool,
        Meta(
            title="Take results of earlier runs from the result store",
            description="Take results of earlier runs with the same code, parameters and inputs from a store, and put "
            "new ones there.",
            extra={"flag": "--reuse/--no-reuse"},
        ),
    ] = False
    verify_reuse: Annotated[
        float,
        Meta(
            ge=0.0,
            le=1.0,
            title="Compute again and compare, share of 1",
            description="Of the results that --reuse could take, compute this share again, such as 5%, and compare: a "
            "difference is an error.",
            extra={"flag": "--verify-reuse", "type": "share"},
        ),
    ] = 0.0
    trust_times: Annotated[
        bool,
        Meta(
            title="Files with the same size and time are the same",
            description="With --reuse, take size and time of a file from outside for its content, and do not read it.",
            extra={"flag": "--trust-times"},
        ),
    ] = False
    report_locals: Annotated[
        bool,
        Meta(
            title="Report local variables of functions that fail",
            description="Report also the local variables of the function that raised. Values are shortened, and those "
            "of names such as token, password and key are hidden.",
            extra={"flag": "--locals/--no-locals"},
        ),
    ] = False


class RunOptions(SessionOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a graph runs on this machine."""

    runner: Annotated[
        str,
        Meta(
            description="Where applications run: inline (in this process one by one), threads, processes; dask or ray "
            "(started here), dask=ADDRESS or ray=ADDRESS (a cluster that runs); or PACKAGE.MODULE:FUNCTION, which "
            "makes a runner.",
            extra={"flag": "--runner", "type": "runner"},
        ),
    ] = "processes"
    workers: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | None,
        Meta(
            description="Number of threads or processes; one per core by default. Of a cluster that runs: attempts at "
            "a time.",
            extra={"flag": "--workers"},
        ),
    ] = None
    durable: Annotated[
        bool,
        Meta(
            description="Force journal and files to the disk (fsync), so that resume works after a loss of power too; "
            "slower.",
            extra={"flag": "--durable"},
        ),
    ] = False
    containers: Annotated[
        Literal["", "podman", "docker", "apptainer"],
        Meta(
            description="Container engine: podman, docker or apptainer; by default that of DROPFLOW_CONTAINERS, or the "
            "first that is installed. A run that is continued keeps its engine.",
            extra={"flag": "--containers", "metavar": "ENGINE"},
        ),
    ] = ""
    store: Annotated[
        str,
        Meta(
            description="Where the result store is, a directory or an address such as s3://bucket/results; by "
            "default that of DROPFLOW_STORE, or ~/.cache/dropflow.",
            extra={"flag": "--store", "type": "place"},
        ),
    ] = ""


def run_options(given: Mapping[str, Any]) -> RunOptions:
    """Return the options of a run that a program gives as keywords.

    Raises
    ------
    UsageError
        There is no such option, or its value is of another type or out of its range.
    """
    try:
        return msgspec.convert(given, RunOptions)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"an option of the run cannot be used: {error}", hint="see the help of 'dropflow run'"
        ) from None


class RunKeywords(TypedDict, total=False):
    """The fields of `RunOptions` as keywords of functions: type checkers cannot derive them. A test compares both."""

    until: float
    infrastructure_retries: int
    retry_memory: float
    check: bool
    reuse: bool
    verify_reuse: float
    trust_times: bool
    report_locals: bool
    runner: str
    workers: int | None
    durable: bool
    containers: Literal["", "podman", "docker", "apptainer"]
    store: str


class SubmitOptions(SessionOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a session runs on the nodes of a manager, beside its graph, name and places."""

    replicas: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            title="Nodes with a copy of each result",
            description="Have results on N nodes before the session ends, so that the loss of a node does not lose "
            "them. A field 'replicas' of a data node sets it for that node.",
            extra={"flag": "--replicas", "metavar": "N"},
        ),
    ] = 1
    protect: Annotated[
        float,
        Meta(
            ge=0.0,
            title="Copy results that took longer than, seconds",
            description="Have contents on two nodes that took longer than this to compute: 90s, 10m, 2h.",
            extra={"flag": "--protect", "type": "duration"},
        ),
    ] = 0.0
    """Seconds; 0 for no copies."""
    memory_limit: Annotated[
        int,
        Meta(
            ge=0,
            le=2**62,
            description="Bytes of contents that a node may hold in memory; others go to the disk. 0 is no limit.",
        ),
    ] = 0
    """Without a flag: `dropflow.dask` sets it."""
    join: Annotated[
        bool,
        Meta(
            title="Nodes that come later take a share",
            description="Whether nodes that come while it runs are added, and it is rebalanced; by default they are.",
            extra={"flag": "--join/--no-join"},
        ),
    ] = True
    fuse: Annotated[
        bool,
        Meta(
            title="Chains of applications run as one unit",
            description="Whether chains of applications without branches run as one unit; by default they do.",
            extra={"flag": "--fuse/--no-fuse"},
        ),
    ] = True


def chosen_of(options: SubmitOptions) -> dict[str, Any]:
    """Return what a record with these options chooses, without the other fields that it may have."""
    return {name: getattr(options, name) for name in SubmitOptions.__struct_fields__}


class AnnotatedField(NamedTuple):
    """One field of a record: its type, its annotation and its default."""

    kind: Any
    meta: Meta
    default: Any

    @property
    def special(self) -> str:
        """The type of values that are not plain numbers or words: ``walltime``, ``duration`` or ``runner``."""
        return str((self.meta.extra or {}).get("type", ""))


def meta_of(record: type[msgspec.Struct]) -> Mapping[str, AnnotatedField]:
    """Return the fields of a record that have a flag, by their names."""
    fields = {}
    for field in msgspec.structs.fields(record):
        if get_origin(field.type) is Annotated:
            kind, meta = get_args(field.type)[:2]
            if meta.extra:
                fields[field.name] = AnnotatedField(*_with_inner_bounds(kind, meta), field.default)
    return fields


def _with_inner_bounds(kind: Any, meta: Meta) -> tuple[Any, Meta]:
    """Return a type and its annotation. If the value may be None, msgspec takes its bounds only at the inner type."""
    inner = next((argument for argument in get_args(kind) if get_origin(argument) is Annotated), None)
    if inner is None:
        return kind, meta
    number, bounds = get_args(inner)[:2]
    given = {
        name: getattr(constraint, name)
        for constraint in (meta, bounds)
        for name in _MEANINGS
        if getattr(constraint, name) is not None
    }
    return number | None, Meta(**given)
