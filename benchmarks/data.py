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

    python benchmarks/data.py [--repeat 5]
"""

import argparse
import json
import mmap
import os
import pickle
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dropflow.apps.encodings import decode, encode
from dropflow.apps.execute import LocalExecutor
from dropflow.clock import SystemClock
from dropflow.data.memory import SMALL
from dropflow.data.read import view
from dropflow.data.registry import store_for
from dropflow.data.repository import LocalRepository
from dropflow.data.store import Slot
from dropflow.engine.api import ExecutorSpec, Handle, Input, Output, Task
from dropflow.graph.templates import Argument, Kind, Link, Template
from dropflow.states import DropState

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
            assert len(bytes(view(content))) == len(body)  # noqa: S101 - a benchmark of something that works
            if content.kind == "shm":
                repository.release(1, template, content)

        def plain(body: bytes = body) -> None:
            path = repository.workspace.files / "plain"
            (repository.workspace.files / "plain.part").write_bytes(body)
            (repository.workspace.files / "plain.part").replace(path)
            assert len(path.read_bytes()) == len(body)  # noqa: S101 - as above

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
    is_text, in_memory = False, True
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
            assert len(bytes(mapped)) == len(body)  # noqa: S101 - as above
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory() as directory:
        repository = LocalRepository(directory, "benchmark", SystemClock())
        result = {
            "benchmark": "data",
            "small_bytes": SMALL,
            "contents": contents(repository, repeat),
            "values": values(repeat),
            "threshold": threshold(repository.workspace.shared, repeat),
            "attempts": attempts(directory, repeat),
        }
        repository.close()
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
