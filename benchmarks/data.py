"""What contents and attempts cost; prints one JSON object.

``contents``
    One content written by an attempt, committed by the repository and read back, in GB/s, at three sizes, for a memory
    drop (in its handle while small, in shared memory above) and a file drop. References of the same run: a copy of
    the bytes in memory, and a plain file written, renamed and read. Ratios are dropflow's time over the reference's.
``values``
    A float64 array put and read back through the port encodings ``pickle`` and ``npy``, in GB/s; the reference is the
    same array through `pickle` to a file object in memory and back.
``threshold``
    A content of some size on its way from one worker to another, in microseconds: in two messages over a socket (to
    the session and on to the consumer), against a file in shared memory that is written, mapped, read and removed.
    Where they cross is where `dropflow.data.memory.SMALL` belongs.
``attempts``
    `LocalExecutor.execute` of an application that does nothing with one input and one output, in microseconds a task,
    at three sizes; the reference is a plain Python function call with the same arguments.

``stores`` (with ``--stores``)
    A file to an S3 store and back, in MB/s, at three sizes; the references are ``put`` and ``get`` of s3fs and
    ``upload_file`` and ``download_file`` of boto3 with the same object. The store is moto's server on this host.

``directories`` (with ``--directories``)
    A committed directory fetched by one node from another one of this host, in MB/s, without and with a cluster key,
    which encrypts: 2,000 files of 20 kB, 100 of 2 MB, four of 256 MB. The references are rsync from its daemon on this
    host, rsync through ssh, and ``cp -r``, which needs no link. Medians of rounds in which each has a turn.

    python benchmarks/data.py [--repeat 5] [--stores] [--directories]
"""

import argparse
import json
import mmap
import multiprocessing
import os
import pickle
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dropflow.apps.encodings import decode, encode
from dropflow.clock import SystemClock
from dropflow.data.memory import SMALL
from dropflow.data.read import view
from dropflow.data.registry import store_for
from dropflow.data.remote import download, location_of, upload
from dropflow.data.repository import LocalRepository
from dropflow.data.storage_errors import tree_of
from dropflow.data.store import Slot
from dropflow.data.workspace import Workspace
from dropflow.execution.content_location import Handle
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.tasks import Input, Output, Task
from dropflow.graph.templates import Argument, Kind, Link, Template
from dropflow.runners.executor import LocalExecutor
from dropflow.states import DropState
from managers.keys import ClusterKey, create
from managers.links import Links
from managers.node.contents import ContentExchange

SIZES = (10_000, 1_000_000, 100_000_000)
TASKS = (1_000, 10_000, 100_000)
STEPS = (4_096, 16_384, 65_536, 262_144, 1_048_576)
_LOOP = 200_000_000  # bytes moved per measurement of a small size

MEMORY = Template(key="m", name="m", kind=Kind.DATA, component="dlg.data.drops.memory.InMemoryDROP")
FILE = Template(
    key="f",
    name="f",
    kind=Kind.DATA,
    component="dlg.data.drops.file.FileDROP",
    arguments=(Argument(name="filepath", value="content"),),
)


def best(work: Callable[[], Any], repeat: int, loops: int) -> float:
    """Seconds of one call: the best of `repeat` rounds of `loops` calls."""
    seconds = []
    for _ in range(repeat):
        started = time.perf_counter()
        for _ in range(loops):
            work()
        seconds.append((time.perf_counter() - started) / loops)
    return min(seconds)


def contents(repository: LocalRepository, repeat: int) -> list[dict[str, Any]]:
    """Write, commit and read, for the classes of data drops."""
    rows = []
    for size in SIZES:
        body = os.urandom(size)
        loops = max(1, min(_LOOP // size, 2_000))

        def through(template: Template, body: bytes = body) -> None:
            part = store_for(template).part(Slot(repository.workspace, "o", 1, 1, 0))
            part.write(body)
            content = repository.commit(1, 1, template, part.finish())
            assert len(bytes(view(content))) == len(body)  # a benchmark of something that works
            if content.kind == "shm":
                repository.release(1, template, content)

        def plain(body: bytes = body) -> None:
            path = repository.workspace.files / "plain"
            (repository.workspace.files / "plain.part").write_bytes(body)
            (repository.workspace.files / "plain.part").replace(path)
            assert len(path.read_bytes()) == len(body)  # as above

        copy = best(lambda body=body: bytes(bytearray(body)), repeat, loops)  # type: ignore[misc]
        file = best(plain, repeat, loops)
        for name, template, reference in (("memory", MEMORY, copy), ("file", FILE, file)):
            seconds = best(lambda template=template: through(template), repeat, loops)  # type: ignore[misc]
            rows.append(
                {
                    "class": name,
                    "bytes": size,
                    "gb_per_second": round(size / seconds / 1e9, 3),
                    "microseconds": round(seconds * 1e6, 1),
                    "reference_gb_per_second": round(size / reference / 1e9, 3),
                    "ratio": round(seconds / reference, 2),
                }
            )
    return rows


class _Source:
    port = name = "x"
    is_text, in_memory, is_joint = False, True, False
    path, url = Path(), ""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.size = len(body)

    def view(self) -> memoryview:
        """All of it."""
        return memoryview(self._body)

    def read(self) -> bytes:
        """All of it."""
        return self._body

    def open(self) -> Any:
        """All of it."""
        import io  # noqa: PLC0415 - only here

        return io.BytesIO(self._body)

    def warn(self, text: str) -> None:
        """Nothing is expected."""
        raise AssertionError(text)


def values(repeat: int) -> list[dict[str, Any]]:
    """Arrays through encodings."""
    rows = []
    for size in SIZES:
        array = np.random.default_rng(1).random(size // 8)
        loops = max(1, min(_LOOP // size, 1_000))
        reference = best(lambda array=array: pickle.loads(pickle.dumps(array, 5)), repeat, loops)  # type: ignore[misc] # noqa: S301
        for name in ("pickle", "npy"):
            seconds = best(
                lambda name=name, array=array: decode(name, _Source(encode(name, array))),  # type: ignore[misc]
                repeat,
                loops,
            )
            rows.append(
                {
                    "encoding": name,
                    "bytes": size,
                    "gb_per_second": round(size / seconds / 1e9, 3),
                    "ratio": round(seconds / reference, 2),
                }
            )
    return rows


def threshold(folder: Path, repeat: int) -> list[dict[str, Any]]:
    """A message against shared memory."""
    rows = []
    for size in STEPS:
        body = os.urandom(size)
        loops = 300
        near, far = socket.socketpair()
        echo = threading.Thread(target=_answer, args=(far, 2 * loops * repeat))
        echo.start()

        def message(body: bytes = body, near: socket.socket = near) -> None:
            for _ in range(2):
                frame = msgspec.msgpack.encode(Handle(body=body, size=len(body)))
                near.sendall(len(frame).to_bytes(4, "little") + frame)
                near.recv(1)

        def shared(body: bytes = body) -> None:
            path = folder / "content"
            path.write_bytes(body)
            with path.open("rb") as stream:
                mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            assert len(bytes(mapped)) == len(body)  # as above
            mapped.close()
            path.unlink()

        sent = best(message, repeat, loops)
        echo.join()
        near.close()
        far.close()
        rows.append(
            {
                "bytes": size,
                "messages_microseconds": round(sent * 1e6, 1),
                "shared_microseconds": round(best(shared, repeat, loops) * 1e6, 1),
            }
        )
    return rows


def _answer(link: socket.socket, messages: int) -> None:
    for _ in range(messages):
        left = int.from_bytes(link.recv(4, socket.MSG_WAITALL), "little")
        frame = link.recv(left, socket.MSG_WAITALL)
        msgspec.msgpack.decode(frame, type=Handle)
        link.sendall(b"x")


def attempts(directory: str, repeat: int) -> list[dict[str, Any]]:
    """Tasks that do nothing."""
    app = Template(key="a", name="a", kind=Kind.APP, component="dlg.apps.simple.NullBarrierApp")
    links = (Link(source=0, target=1), Link(source=1, target=0))
    executor = LocalExecutor(ExecutorSpec(session="s", directory=directory, templates=(MEMORY, app), links=links))
    rows = []
    for count in TASKS:
        tasks = [
            Task(
                drop, 1, 1, f"g_a_0-{drop}", (drop,),
                (Input(drop, f"g_m_0-{drop}", 0, 0, DropState.COMPLETED, Handle()),),
                (Output(drop, f"g_m_0-{drop}", 0, 1),),
            )
            for drop in range(count)
        ]  # fmt: skip

        def call(task: Task) -> Task:
            return task

        ours = best(lambda tasks=tasks: [executor.execute(task) for task in tasks], repeat, 1)  # type: ignore[misc]
        plain = best(lambda tasks=tasks: [call(task) for task in tasks], repeat, 1)  # type: ignore[misc]
        rows.append(
            {
                "tasks": count,
                "microseconds_per_task": round(ours / count * 1e6, 2),
                "reference_microseconds": round(plain / count * 1e6, 3),
                "ratio": round(ours / plain, 1),
            }
        )
    executor.close()
    return rows


STORED = (1_000_000, 30_000_000, 100_000_000)
_SERVER = "from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"


def stores(folder: Path, repeat: int) -> list[dict[str, Any]]:
    """Write and read objects of a store, as drops do and as its libraries do."""
    import boto3  # noqa: PLC0415 - these are only there with the tools
    import s3fs  # noqa: PLC0415

    port = _free_port()
    os.environ.update(
        AWS_ACCESS_KEY_ID="x",
        AWS_SECRET_ACCESS_KEY="x",
        AWS_DEFAULT_REGION="us-east-1",
        AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
    )
    rows, source, target = [], folder / "source", folder / "target"
    server = subprocess.Popen([sys.executable, "-c", _SERVER.format(port=port)], stderr=subprocess.DEVNULL)
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            server.poll()
        boto, system = boto3.client("s3"), s3fs.S3FileSystem()
        boto.create_bucket(Bucket="bucket")
        for size in STORED:
            source.write_bytes(os.urandom(size))
            place = location_of("s3://bucket/ours", {})
            handle = Handle(kind="url", location=place, size=size, checksum=zlib.crc32(source.read_bytes()))

            def ours(handle: Handle = handle) -> None:
                target.unlink(missing_ok=True)
                download(handle, target)

            tried: dict[str, Callable[[], Any]] = {
                "written": lambda place=place: upload(str(source), place, place),  # type: ignore[misc]
                "put": lambda: system.put_file(str(source), "bucket/theirs"),
                "upload_file": lambda: boto.upload_file(str(source), "bucket", "theirs"),
                "read": ours,
                "get": lambda: system.get_file("bucket/ours", str(target)),
                "download_file": lambda: boto.download_file("bucket", "ours", str(target)),
            }
            # In turns, so that what else the host does takes of each alike.
            rounds = [{name: best(work, 1, 1) for name, work in tried.items()} for _ in range(repeat)]
            seconds = {name: min(one[name] for one in rounds) for name in tried}
            speeds = {name: round(size / one / 1e6, 1) for name, one in seconds.items()}
            rows.append(
                {
                    "bytes": size,
                    **speeds,
                    "written_share": round(seconds["put"] / seconds["written"], 2),
                    "read_share": round(seconds["get"] / seconds["read"], 2),
                }
            )
    finally:
        server.kill()
        server.wait()
    return rows


TREES = ((2_000, 20_000), (100, 2_000_000), (4, 256_000_000))
"""Files of a directory, and the bytes of each."""


def _offer(pipe: Connection, directory: str, key: ClusterKey | None) -> None:
    """Offer a directory from a process of its own, as a node does."""
    exchange = ContentExchange("bench", Workspace(f"{directory}/offering", "bench"), in_place=False)
    (Path(directory) / "offering" / "tmp").mkdir(parents=True, exist_ok=True)
    size, checksum = tree_of(f"{directory}/tree")
    handle = Handle(kind="directory", location=f"{directory}/tree", size=size, checksum=checksum)
    content = exchange.offer(1, handle)
    with Links(
        "peer", key=key, on_message=lambda _: None, open_content=lambda _, d, __, p: exchange.source(d, p)
    ) as to:
        pipe.send((to.address, content))
        pipe.recv()


@contextmanager
def _fetching(directory: Path, key: ClusterKey | None) -> Iterator[Callable[[], str]]:
    """A function that fetches the directory of another process, and returns where it is."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_offer, args=(theirs, str(directory), key), daemon=True)
    process.start()
    address, content = ours.recv()
    workspace = Workspace(str(directory / "fetching"), "bench")
    workspace.tmp.mkdir(parents=True, exist_ok=True)
    exchange = ContentExchange("bench", workspace, in_place=False)
    with Links("client", key=key, on_message=lambda _: None) as links:
        links.connect("peer", address)

        def fetch() -> str:
            job = exchange.fetch(content, lambda: False)
            try:
                pending = next(job)
                while True:
                    result = links.fetch("peer", pending.wanted, pending.sink, timeout=pending.timeout)
                    pending = job.send(result)
            except StopIteration as end:
                handle: Handle = end.value
                return handle.location

        try:
            yield fetch
        finally:
            ours.send("stop")
            process.join()


@contextmanager
def _server(command: list[str], port: int) -> Iterator[None]:
    """A server on a port of this host."""
    process = subprocess.Popen([shutil.which(command[0]) or command[0], *command[1:]], stdin=subprocess.DEVNULL)
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            if process.poll() is not None:
                raise SystemExit(f"{command[0]} did not start; why is said above")
        yield
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@contextmanager
def _rsync(directory: Path) -> Iterator[dict[str, list[str]]]:
    """Commands that copy a directory by rsync from its daemon and through ssh; only the target is missing."""
    daemon, shell = _free_port(), _free_port()
    (directory / "rsyncd.conf").write_text(f"use chroot = no\n[tree]\npath = {directory}/tree\n")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / "key")], check=True)
    Path("/run/sshd").mkdir(exist_ok=True)  # sshd does not start without it
    settings = [f"Port={shell}", "ListenAddress=127.0.0.1", f"HostKey={directory}/key", "StrictModes=no"]
    settings += [f"AuthorizedKeysFile={directory}/key.pub", "PidFile=none", "PermitRootLogin=yes"]
    ssh = f"ssh -F none -p {shell} -i {directory}/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -q"
    with (
        _server(
            f"rsync --daemon --no-detach --address=127.0.0.1 --port={daemon} --config={directory}/rsyncd.conf".split(),
            daemon,
        ),
        _server(["sshd", "-D", "-q", "-f", "/dev/null", *(f"-o{setting}" for setting in settings)], shell),
    ):
        yield {
            "rsync": ["rsync", "-a", f"rsync://127.0.0.1:{daemon}/tree/"],
            "rsync_ssh": ["rsync", "-a", "-e", ssh, f"127.0.0.1:{directory}/tree/"],
        }


def directories(folder: Path, repeat: int) -> list[dict[str, Any]]:
    """Fetch directories of a node, and copy them as other programs do."""
    rows = []
    key = create(folder / "keys" / "cluster.key")
    for files, size in TREES:
        directory = folder / f"{files}-files"
        (directory / "tree" / "inside").mkdir(parents=True)
        for number in range(files):
            (directory / "tree" / ("inside" if number % 2 else ".") / str(number)).write_bytes(os.urandom(size))
        with (
            _fetching(directory, None) as plain,
            _fetching(directory, key) as with_key,
            _rsync(directory) as commands,
        ):
            commands["cp"] = ["cp", "-r", str(directory / "tree")]

            def copied(name: str, commands: dict[str, list[str]] = commands, to: str = f"{directory}/target") -> str:
                subprocess.run([*commands[name], to], check=True)
                return to

            tried = {"links": plain, "links_with_key": with_key} | {name: partial(copied, name) for name in commands}
            seconds: dict[str, list[float]] = {name: [] for name in tried}
            for _ in range(repeat):
                for name, work in tried.items():
                    os.sync()  # what the one before has written is not written in the time of this one
                    started = time.perf_counter()
                    made = work()
                    seconds[name].append(time.perf_counter() - started)
                    shutil.rmtree(made)
        shutil.rmtree(directory)
        medians = {name: statistics.median(times) for name, times in seconds.items()}
        rows.append(
            {
                "files": files,
                "bytes": files * size,
                **{name: round(files * size / median / 1e6) for name, median in medians.items()},
                "share_of_rsync": round(medians["rsync"] / medians["links"], 2),
                "share_of_rsync_ssh_with_key": round(medians["rsync_ssh"] / medians["links_with_key"], 2),
                "share_of_cp": round(medians["cp"] / medians["links"], 2),
            }
        )
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--stores", action="store_true")
    parser.add_argument("--directories", action="store_true")
    given = parser.parse_args()
    repeat = given.repeat
    with tempfile.TemporaryDirectory() as directory:
        repository = LocalRepository(directory, "benchmark", SystemClock())
        result = {
            "benchmark": "data",
            "small_bytes": SMALL,
            "contents": contents(repository, repeat),
            "values": values(repeat),
            "threshold": threshold(repository.workspace.shared, repeat),
            "attempts": attempts(directory, repeat),
            **({"stores": stores(Path(directory), repeat)} if given.stores else {}),
            **({"directories": directories(Path(directory), repeat)} if given.directories else {}),
        }
        repository.close()
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
