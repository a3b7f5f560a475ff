"""The process that reads contents: ``python -m dropflow.preview.worker DESCRIPTOR MEMORY SECONDS``.

A node manager starts it (`managers.node.downloads`) and sends one request after another through a socket. What a
content makes of its decoders, here it reaches neither the memory nor the token of a manager, and what ends this process
costs one preview.
"""

import contextlib
import fcntl
import os
import resource
import select
import signal
import socket
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import msgspec

from dropflow.errors import BadFileError
from dropflow.preview.look import picture, preview
from dropflow.preview.source import (
    HEAD_BYTES,
    BytesSource,
    DirectorySource,
    OpenFileSource,
    PreviewAnswer,
    PreviewRequest,
    Source,
)

_NICENESS = 5
"""Niceness that is added to this process, so that attempts get the processors first."""
_DOWNLOAD = "download it"


def main(descriptor: int, memory: int, seconds: int) -> None:
    """Answer requests until the manager closes the socket, or ends.

    Parameters
    ----------
    descriptor : int
        Descriptor of the socket. Standard input is the end of a pipe that the manager never writes to.
    memory : int
        Bytes of address space.
    seconds : int
        Processor time of one request.
    """
    _end_with_manager()
    os.set_blocking(sys.stderr.fileno(), False)  # nothing reads the warnings of decoders while they work
    restrict(memory)
    decoder = msgspec.msgpack.Decoder(PreviewRequest)
    with socket.socket(fileno=descriptor) as link:
        while True:
            head, descriptors, _, _ = socket.recv_fds(link, HEAD_BYTES, 1)
            if not head:
                return
            length = int.from_bytes(head, "big")
            request = decoder.decode(link.recv(length, socket.MSG_WAITALL))
            allow(seconds)
            body = _encoded(answer(request, descriptors[0] if descriptors else None, memory))
            link.sendall(len(body).to_bytes(HEAD_BYTES, "big") + body)


def answer(request: PreviewRequest, descriptor: int | None, memory: int) -> PreviewAnswer:
    """Return what is wanted of a content, or what is wrong with it.

    Parameters
    ----------
    descriptor : int or None
        Descriptor of a file; it is closed.
    memory : int
        The limit of this process, for the message.
    """
    try:
        with _source(request, descriptor) as source:
            if request.is_picture:
                return PreviewAnswer(picture=picture(source, request.query))
            return PreviewAnswer(preview=preview(source, request.query))
    except BadFileError as error:
        return PreviewAnswer(trouble=error.text, where=error.where, hint=error.hint)
    except MemoryError:
        return PreviewAnswer(trouble=f"it needs more than {memory >> 20:,} MB of memory to be shown", hint=_DOWNLOAD)
    except Exception:  # noqa: BLE001 - the manager raises it
        return PreviewAnswer(bug=traceback.format_exc())


@contextlib.contextmanager
def _source(request: PreviewRequest, descriptor: int | None) -> Iterator[Source | DirectorySource]:
    if request.body is not None:
        yield BytesSource(request.body, request.name)
    elif descriptor is None:
        yield DirectorySource(Path(request.folder))
    else:
        with open(descriptor, "rb", buffering=0) as stream:  # noqa: PTH123 - a descriptor
            yield OpenFileSource(stream.fileno(), request.name)


def _encoded(preview_answer: PreviewAnswer) -> bytes:
    try:
        return msgspec.msgpack.encode(preview_answer)
    except UnicodeEncodeError:
        trouble = "it has text or names that are not Unicode"
        return msgspec.msgpack.encode(PreviewAnswer(trouble=trouble, hint=_DOWNLOAD))


def _end_with_manager() -> None:
    """Ask the kernel to end this process when standard input is closed, as it is when the manager ends.

    A thread that waits for that would not run while compiled code holds the lock of the interpreter.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    ready = select.poll()
    ready.register(0, select.POLLIN)
    if ready.poll(0):  # it was closed before
        sys.exit()


def restrict(memory: int) -> None:
    """Give this process little: address space, priority, no files to write, no core dumps, the first to be killed."""
    os.nice(_NICENESS)
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # its own pool would reserve 1 GB of address space
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    for kind, wanted in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_AS, memory),
    ):
        _, most = resource.getrlimit(kind)
        limit = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(kind, (limit, limit))


def allow(seconds: int) -> None:
    """Ask the kernel to end this process after this many more seconds of processor time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    limit = int(used.ru_utime + used.ru_stime) + seconds + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
