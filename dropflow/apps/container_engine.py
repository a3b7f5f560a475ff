"""The container engine of this host, and the images of a session.

Images are pulled when a session is prepared, before its attempts run. Each is pulled once, also if several sessions of
this host need it at the same time. The file ``containers.json`` in the directory of the session has the engine, and the
unchanging name of each image: its digest in the registry, else its id on this host, or for apptainer a file. So a
session that is resumed or retried runs the same images, although tags may have been moved meanwhile.
"""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from dropflow.data.storage_errors import storage_errors
from dropflow.errors import BadFileError, MissingDependencyError
from dropflow.files import replace_file
from dropflow.ids import drop_file_name

ENGINE_VARIABLE = "DROPFLOW_CONTAINERS"
"""Environment variable with the command of the container engine of this host, such as ``podman --runtime runc``."""
ANSWER_SECONDS = 60.0
"""Most seconds that an engine may take to answer or to remove a container."""

_ENGINES = ("podman", "docker", "apptainer", "singularity")
_RECORD = "containers.json"
_FOLDER = "images"
_UNRESOLVED = "did not resolve to an alias"
"""Text in the error of podman for a name without a registry if the site has configured none to look in."""


class ContainerEngine(NamedTuple):
    """The container engine of this host.

    Attributes
    ----------
    command : tuple of str
        Its program, with options.
    limits : str
        Names of the resources that it can limit, ``cpu`` and ``memory``; empty for none.
    is_rootless : bool
        Whether it maps the user of this process to root, unless an option keeps the ids.
    """

    command: tuple[str, ...]
    limits: str
    is_rootless: bool

    @property
    def name(self) -> str:
        """Name of its program."""
        return Path(self.command[0]).name

    @property
    def is_apptainer(self) -> bool:
        """Whether it is apptainer, which runs containers as its own children, without names."""
        return self.name in ("apptainer", "singularity")

    def ask(self, *arguments: str) -> str:
        """Return the answer of the engine to a question; empty if it fails."""
        return _answer((*self.command, *arguments))


class ContainerRecord(msgspec.Struct, frozen=True):
    """The engine and the images that a session has recorded for its containers.

    Attributes
    ----------
    engine : tuple of str
        Command of the container engine; empty if it is that of the host.
    images : dict of str to str
        By the name in the graph: the name, id or file of the image that runs.
    """

    engine: tuple[str, ...] = ()
    images: dict[str, str] = {}


def container_engine(name: str = "") -> ContainerEngine:
    """Return the container engine of this name, or that of `ENGINE_VARIABLE`, or the first that is installed.

    Parameters
    ----------
    name : str
        Name of a program. If `ENGINE_VARIABLE` has options for this program, they are used.

    Raises
    ------
    MissingDependencyError
        It is not installed on this host.
    """
    named = shlex.split(os.environ.get(ENGINE_VARIABLE, ""))
    if name and (not named or Path(named[0]).name != name):
        named = [name]
    command = named or [program for program in _ENGINES if shutil.which(program)][:1]
    if not command or not shutil.which(command[0]):
        missing = f"the container engine '{command[0]}'" if command else "a container engine"
        raise MissingDependencyError(
            f"{missing} is not installed on this host",
            hint=f"install podman, docker or apptainer, or name another one with --containers or {ENGINE_VARIABLE}",
            of_host=True,
        )
    return _engine(tuple(command))


@cache
def _engine(command: tuple[str, ...]) -> ContainerEngine:
    name = Path(command[0]).name
    if name == "podman":
        rootless, _, limits = _answer(
            (*command, "info", "--format", "{{.Host.Security.Rootless}} {{.Host.CgroupControllers}}")
        ).partition(" ")
        return ContainerEngine(command, limits, rootless == "true")
    return ContainerEngine(command, "cpu memory" if name == "docker" else "", is_rootless=False)


def _answer(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the engine of this host
            command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if not done.returncode else ""


def read_record(directory: Path) -> ContainerRecord:
    """Return the record of the session in `directory` about its containers.

    Raises
    ------
    BadFileError
        The file cannot be read.
    """
    path = directory / _RECORD
    try:
        return msgspec.json.decode(path.read_bytes(), type=ContainerRecord)
    except FileNotFoundError:
        return ContainerRecord()
    except (OSError, ValueError) as error:
        raise BadFileError(
            f"the images of the session cannot be read: {error}",
            where=str(path),
            hint="remove the file: then the images are those that their names mean today",
        ) from error


def pull_images(
    images: Iterable[str], directory: Path, *, engine: str = "", report: Callable[[str], object] = lambda _: None
) -> dict[str, str]:
    """Pull images that are not on this host, record the unchanging names of all in `directory`, and return them.

    Parameters
    ----------
    images : iterable of str
        Whole names.
    directory : Path
        Directory of the session. Images in its record stay the same.
    engine : str
        Name of the container engine; by default the engine in the record of the session, else that of this host.
    report : callable
        Gets lines about the progress.

    Raises
    ------
    MissingDependencyError
        Images cannot be pulled, or there is no such engine. No record is written then.
    StorageError
        The record cannot be written.
    """
    known = read_record(directory)
    end_containers(directory)
    used = container_engine(engine or Path(*known.engine[:1]).name)
    pulled: dict[str, str] = {}
    failed: dict[str, str] = {}
    for image in images:
        wanted = known.images.get(image, image)
        answer = _pull(used, wanted, directory, report)
        if answer:
            failed[image] = answer if wanted == image else f"{answer} (the session began with {wanted})"
        else:
            pulled[image] = _unchanging(used, wanted, directory)
    if failed:
        raise pull_error(used, failed)
    _write_record(directory, ContainerRecord(used.command, {**known.images, **pulled}))
    return pulled


def pull_error(engine: ContainerEngine, answers: Mapping[str, str]) -> MissingDependencyError:
    """Return the error for images that an engine could not pull, with its answer for each of them."""
    listed = "; ".join(f"'{image}': {answer}" for image, answer in answers.items())
    return MissingDependencyError(
        f"{engine.name} cannot pull the image{'s' if len(answers) > 1 else ''} {listed}",
        hint="correct the field 'image', log in to the registry, or load the image on this host before",
        of_host=True,
    )


def note_images(images: Iterable[str], directory: Path, *, engine: str = "") -> None:
    """Record in `directory` the unchanging names of images. Pulls nothing: an image that is not here keeps its name.

    Raises
    ------
    MissingDependencyError
        There is no such engine.
    StorageError
        The record cannot be written.
    """
    used = container_engine(engine)
    _write_record(
        directory, ContainerRecord(used.command, {image: _unchanging(used, image, directory) for image in images})
    )


def _write_record(directory: Path, record: ContainerRecord) -> None:
    path = directory / _RECORD
    with storage_errors("write", path):
        replace_file(path, msgspec.json.format(msgspec.json.encode(record), indent=2))


def labels(directory: Path) -> tuple[str, ...]:
    """Return the labels of the containers of the session in `directory`."""
    return (f"dropflow.directory={directory}", f"dropflow.sessions={directory.parent}")


def end_containers(directory: Path) -> None:
    """Remove containers of sessions whose processes were killed.

    Parameters
    ----------
    directory : Path
        Directory of one session, or the directory of the sessions of a node. No process is at work there.
    """
    records = [read_record(directory)] if (directory / _RECORD).exists() else []
    label = labels(directory)[0]
    if not records:
        records = [read_record(file.parent) for file in directory.glob(f"*/{_RECORD}")]
        label = labels(directory / "*")[1]
    for command in {record.engine for record in records if record.engine}:
        engine = ContainerEngine(command, "", is_rootless=False)
        if not engine.is_apptainer:
            left = engine.ask("ps", "--all", "--quiet", "--filter", f"label={label}").split()
            if left:
                engine.ask("kill", *left)  # so that rm does not wait for their end
                engine.ask("rm", "--force", *left)


def fetch_command(engine: ContainerEngine, image: str) -> str:
    """Return a shell command that pulls an image unless it is here. Such commands of one host wait for each other.

    A name without a registry, such as ``group/program:1``, means docker.io for docker and apptainer. Podman refuses it
    if the site has configured no registries: then it is pulled from docker.io, too.
    """
    lock = Path(tempfile.gettempdir()) / f"dropflow-images-{os.getuid()}.lock"
    known, pulled = (shlex.join([*engine.command, *verb, image]) for verb in (("image", "inspect"), ("pull",)))
    if engine.name == "podman" and not _has_registry(image):
        pull = shlex.join([*engine.command, "pull", f"docker.io/{image}"])
        pulled = f"{{ said=$({pulled} 2>&1); status=$?; case $said in *'{_UNRESOLVED}'*) {pull};; "
        pulled += "*) printf '%s\\n' \"$said\"; exit $status;; esac; }"
    text = f"{known} > /dev/null 2>&1 || {pulled}"
    return f"exec flock {shlex.quote(str(lock))} /bin/sh -c {shlex.quote(text)}"


def _has_registry(image: str) -> bool:
    first, slash, _ = image.partition("/")
    return bool(slash) and (first == "localhost" or "." in first or ":" in first)


def _pull(engine: ContainerEngine, image: str, directory: Path, report: Callable[[str], object]) -> str:
    """Pull an image unless it is here. Returns the engine's last line if it fails, else an empty text."""
    command = ["/bin/sh", "-c", fetch_command(engine, image)]
    if engine.is_apptainer:
        if Path(image).exists():
            return ""
        file = _file_of(image, directory)
        file.parent.mkdir(exist_ok=True)
        command = [*engine.command, "pull", "--force", str(file), image if "://" in image else f"docker://{image}"]
    last = ""
    report(f"image {image}: {engine.name} looks for it, and pulls it if needed")
    with subprocess.Popen(  # noqa: S603 - the engine of this host
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None  # it is a pipe
        for line in process.stdout:
            last = line.strip() or last
            report(f"image {image}: {line.strip()}")
    return (last or f"status {process.returncode}") if process.returncode else ""


def _unchanging(engine: ContainerEngine, image: str, directory: Path) -> str:
    """Return the digest, id or file of an image that is here."""
    if engine.is_apptainer:
        return image if Path(image).exists() else str(_file_of(image, directory))
    if "@" in image:
        return image
    digests, _, key = engine.ask("image", "inspect", "--format", "{{json .RepoDigests}} {{.Id}}", image).rpartition(" ")
    name = image.rpartition(":")[0] if ":" in image.rpartition("/")[2] else image
    known: list[str] = msgspec.json.decode(digests or "[]") or []
    same = [each for each in known if each.partition("@")[0].endswith(name)]
    return next(iter([*same, key]), "") or image


def _file_of(image: str, directory: Path) -> Path:
    return directory / _FOLDER / f"{drop_file_name(image)}.sif"
