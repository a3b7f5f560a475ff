"""The directory of a job, on a file system that the job and the commands outside share. It outlives the job.

::

    job.json       what was asked for
    graph.dfg      the graph, unless the cluster is for interactive work
    job.sh         the batch script
    key, token     of the cluster of this job; as all files here, only their owner can read them
    status.json    how far the job is; replaced as a whole
    output         what the script and its programs print
    nodes/<k>      the directory of the k-th node, with its sessions; <k>.json has its address while it runs
    results/       the results, unless another directory was asked for

Commands outside learn from ``status.json`` how the session is, also where they cannot reach the hosts of the job.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from dropflow.api.session_records import SessionDetail
from dropflow.errors import BadFileError, NotFoundError, StorageError
from dropflow.files import GRAPH_FILE, private_directory, replace_file
from dropflow.session_options import SubmitOptions
from managers.jobs.ssh import SshHost
from managers.keys import create

Record = TypeVar("Record", bound=msgspec.Struct)

_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a job: its batch system, session, hosts and walltime.

    Attributes
    ----------
    system : str
        ``slurm``, ``pbs``, ``sge`` or ``ssh``.
    session : str
        Name of the session; empty for a cluster for interactive work.
    nodes : int
        How many hosts it asks for.
    seconds : float
        Its walltime; 0 if it is that of the partition, which is not known.
    margin : float
        How many seconds before the walltime the session stops.
    goes_on : bool
        Whether the batch system starts the job again after the walltime.
    is_pool : bool
        Whether it is the one node of a job of a pool, which has a session of no job.
    results : str
        Where the results go.
    options : SubmitOptions
        How the session runs.
    hosts : tuple of SshHost
        The hosts of a job over ssh; a batch system chooses its own.
    address : str
        Address of the host of the island; its name by default.
    tunnel : tuple of int
        The port of the links of the island, if ssh forwards the ports of all managers.
    """

    system: str
    session: str
    nodes: int
    seconds: float
    margin: float
    goes_on: bool
    is_pool: bool = False
    results: str
    options: SubmitOptions = SubmitOptions()
    hosts: tuple[SshHost, ...] = ()
    address: str = ""
    tunnel: tuple[int, ...] = ()


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far a job is.

    Attributes
    ----------
    state : str
        ``starting``; ``running``: the cluster answers; ``stopped``: the session can go on in another job; ``over``.
    url : str
        Address of the island.
    present : int
        How many nodes have started.
    detail : SessionDetail or None
        The session.
    notes : tuple of str
        Notes for people.
    code, text : str
        The error that ended the job.
    idle : int
        How often in a row the job was started again by itself without more that is completed.
    time : float
        When this was written, in seconds since the epoch.
    """

    state: Literal["starting", "running", "stopped", "over"] = "starting"
    url: str = ""
    present: int = 0
    detail: SessionDetail | None = None
    notes: tuple[str, ...] = ()
    code: str = ""
    text: str = ""
    idle: int = 0
    time: float = 0.0

    def idle_after(self, detail: SessionDetail | None) -> int:
        """Return `idle` after the job that began with this status, and ended with such a session."""
        then, now = (0 if session is None else session.counts.completed for session in (self.detail, detail))
        return 0 if now > then else self.idle + 1


class JobDirectory:
    """The files of one job."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.graph = path / GRAPH_FILE
        self.script = path / "job.sh"
        self.key = path / "key"
        self.token = path / "token"
        self.output = path / "output"
        self.nodes = path / "nodes"
        self.number = path / "number"
        """Number of the latest job."""

    @property
    def request(self) -> JobRequest:
        """The request that the job was made for.

        Raises
        ------
        NotFoundError
            This is not the directory of a job.
        """
        request = read_record(self.path / "job.json", JobRequest)
        if request is None:
            hint = "give the directory that 'dropflow launch' named"
            raise NotFoundError("not the directory of a job", where=str(self.path), hint=hint)
        return request

    @property
    def status(self) -> JobStatus | None:
        """How far the job is; None if it has not begun."""
        return read_record(self.path / "status.json", JobStatus)

    def write(self, record: JobRequest | JobStatus) -> None:
        """Replace the file of a record as a whole."""
        name = "job.json" if isinstance(record, JobRequest) else "status.json"
        self.write_text(self.path / name, msgspec.json.encode(record).decode())

    def write_text(self, path: Path, text: str) -> None:
        """Replace a file of this directory, which only its owner can read.

        Raises
        ------
        StorageError
            It cannot be written.
        """
        try:
            replace_file(path, text.encode())
        except OSError as error:
            raise StorageError(f"the job cannot be recorded: {error.strerror}", where=str(path)) from error

    def ready_file(self, number: int) -> Path:
        """Return the file in which the node with this number writes its ready line."""
        return self.nodes / f"{number}.json"

    def addresses(self) -> dict[int, str]:
        """Return the addresses of the nodes that have started, by number."""
        return {number: line.url for number, line in self._ready_lines() if line.url}

    def failures(self) -> dict[int, str]:
        """Return why nodes have not started, by number."""
        return {number: str(line.error["text"]) for number, line in self._ready_lines() if "text" in line.error}

    def _ready_lines(self) -> Iterator[tuple[int, "_Ready"]]:
        for path in self.nodes.glob("*.json"):
            with suppress(msgspec.MsgspecError, OSError):  # it is being written
                yield int(path.stem), msgspec.json.decode(path.read_bytes(), type=_Ready)

    def forget_addresses(self) -> None:
        """Remove the addresses of an earlier job."""
        private_directory(self.nodes)
        for path in self.nodes.glob("*.json"):
            path.unlink()

    def remove(self) -> None:
        """Remove the directory of a job that was never submitted."""
        for path in self.path.iterdir():
            path.unlink(missing_ok=True)
        self.path.rmdir()


class _Ready(msgspec.Struct, frozen=True):
    """The part of a ready line, or of the line of an error, that is used; one that is being written is not complete."""

    url: str = ""
    error: dict[str, object] = {}


def new_job_directory(parent: Path, name: str) -> JobDirectory:
    """Make a directory with a fresh key below `parent`, called `name`, or with a number if that is there already.

    Raises
    ------
    StorageError
        It cannot be made.
    """
    private_directory(parent)
    for number in range(1, 1_000_000):
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise StorageError(f"the directory cannot be made: {error.strerror}", where=str(path)) from error
        made = JobDirectory(path.absolute())
        create(made.key)
        return made
    raise StorageError("there are a million jobs of this name", where=str(parent), hint="remove those that are over")


def seconds_of_time(text: str) -> float:
    """Return a walltime in seconds, in the forms of Slurm: MINUTES, MINUTES:SECONDS, H:MM:SS or DAYS-HOURS[:MM[:SS]].

    Raises
    ------
    ValueError
        It has none of these forms.

    Examples
    --------
    >>> seconds_of_time("2:00:00"), seconds_of_time("90"), seconds_of_time("1-12"), seconds_of_time("5:30")
    (7200.0, 5400.0, 129600.0, 330.0)
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a walltime; give H:MM:SS, such as 2:00:00, or minutes")
    days, *numbers = (int(part) if part else None for part in match.groups())
    given = [number for number in numbers if number is not None]
    if days is not None:
        hours, minutes, seconds = [*given, 0, 0][:3]
    elif len(given) == 3:
        hours, minutes, seconds = given
    else:
        hours, minutes, seconds = 0, given[0], given[1] if len(given) > 1 else 0
    return float(((days or 0) * 24 + hours) * 3600 + minutes * 60 + seconds)


def read_record(path: Path, kind: type[Record]) -> Record | None:
    """Return the record in a file of a job, or None if there is no such file.

    Raises
    ------
    BadFileError
        It is damaged.
    StorageError
        It cannot be read.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"the job cannot be read: {error.strerror}", where=str(path)) from error
    except msgspec.MsgspecError as error:
        raise BadFileError("the record of the job is damaged", where=str(path), hint=str(error)) from error
