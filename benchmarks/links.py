"""Links between two processes of this machine, against bare pyzmq in the same run. Prints one JSON object.

* ``latency``: round trip of one small message (a batch of one event), echoed by the other process: median and 99th
  percentile in microseconds, of links and of a bare DEALER to ROUTER, taken in turns.
* ``events``: events per second from one process to another, in batches of 1, 100 and 10,000.
* ``fetch``: megabytes per second of content fetched, against a bare stream of frames of the same size, with and
  without checking the CRC-32 of all of it (zlib's is slower than a loopback).

Each with CURVE off and on. Run: ``python benchmarks/links.py [--quick]``.
"""

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from managers.keys import ClusterKey, create
from managers.links import BufferSource, Links, LinkSettings, ReceivedMessage, WantedContent
from managers.messages import Events

_CHUNK = LinkSettings().chunk_most


def _event(count: int = 1, sequence: int = 1) -> Events:
    ones = np.ones(count, np.int32)
    return Events.of("bench", 1, sequence, drops=np.arange(count), states=2 * ones, attempts=ones, causes=-ones)


def _curve(socket: "zmq.Socket[bytes]", key: ClusterKey | None, *, server: bool) -> None:
    if key is None:
        return
    if server:
        socket.setsockopt(zmq.CURVE_SERVER, 1)
    else:
        socket.setsockopt(zmq.CURVE_SERVERKEY, key.public)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, key.public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, key.secret)


# The other process ----------------------------------------------------------------------------------------------------


def _links_peer(pipe: Connection, key: ClusterKey | None, size: int) -> None:
    """Echo batches of one event, count the others, and serve content."""
    content = np.random.default_rng(1).bytes(size) if size else b""
    counted, done = [0], threading.Event()

    def on_message(received: ReceivedMessage) -> None:
        message = received.message
        if isinstance(message, Events):
            counted[0] += len(message)
            if message.epoch == 1:
                links.send("client", message)
            elif message.epoch == 3:
                done.set()

    links = Links("peer", key=key, on_message=on_message, open_content=lambda *_: BufferSource(content))
    pipe.send((links.address, zlib.crc32(content)))
    while (command := pipe.recv()) != "stop":
        if command == "count":
            done.wait()
            done.clear()
            pipe.send(counted[0])
            counted[0] = 0
    links.close()


def _bare_peer(pipe: Connection, key: ClusterKey | None, size: int) -> None:
    """Echo messages, or send frames of content without waiting for credit of the reader."""
    content = np.random.default_rng(1).bytes(size) if size else b""
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    _curve(socket, key, server=True)
    pipe.send((f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}", 0))
    view = memoryview(content)
    while True:
        route, body = socket.recv_multipart()
        if body == b"stop":
            break
        if body == b"fetch":
            for start in range(0, size, _CHUNK):
                socket.send(route, zmq.SNDMORE)
                socket.send(view[start : start + _CHUNK], copy=False)
        else:
            socket.send_multipart([route, body])
    context.destroy(0)


@contextmanager
def _peer(target: Callable[..., None], key: ClusterKey | None, size: int = 0) -> Iterator[tuple[Connection, Any]]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, key, size), daemon=True)
    process.start()
    try:
        yield ours, ours.recv()
    finally:
        process.join(5)
        process.kill()


@contextmanager
def _linked(key: ClusterKey | None, size: int = 0) -> Iterator[tuple[Links, Connection, int, threading.Event]]:
    with _peer(_links_peer, key, size) as (pipe, (address, checksum)):
        back = threading.Event()
        links = Links("client", key=key, on_message=lambda _: back.set())
        links.connect("peer", address)
        links.send("peer", _event())
        back.wait(10)
        back.clear()
        try:
            yield links, pipe, checksum, back
        finally:
            pipe.send("stop")
            links.close()


@contextmanager
def _bare(key: ClusterKey | None, size: int = 0) -> Iterator["zmq.Socket[bytes]"]:
    with _peer(_bare_peer, key, size) as (_, (address, _checksum)):
        context = zmq.Context()
        socket = context.socket(zmq.DEALER)
        _curve(socket, key, server=False)
        socket.connect(address)
        socket.send(b"x")
        socket.recv()
        try:
            yield socket
        finally:
            socket.send(b"stop")
            context.destroy(1000)


# What is measured -----------------------------------------------------------------------------------------------------


def _summary(seconds: list[float]) -> dict[str, float]:
    micros = sorted(second * 1e6 for second in seconds)
    return {
        "round_trip_median_us": round(statistics.median(micros), 1),
        "round_trip_p99_us": round(micros[int(len(micros) * 0.99)], 1),
        "one_way_median_us": round(statistics.median(micros) / 2, 1),
    }


def latency(key: ClusterKey | None, rounds: int) -> dict[str, Any]:
    """Measure round trips of links and of bare pyzmq, in turns of 100."""
    event, body = _event(), b"x" * 60
    ours: list[float] = []
    bare: list[float] = []
    with _linked(key) as (links, _, _, back), _bare(key) as socket:
        for turn in range(rounds // 100):
            for _ in range(100):
                start = time.perf_counter()
                links.send("peer", event)
                back.wait()
                ours.append(time.perf_counter() - start)
                back.clear()
            for _ in range(100):
                start = time.perf_counter()
                socket.send(body)
                socket.recv()
                bare.append(time.perf_counter() - start)
            if turn == 0:
                ours.clear()
                bare.clear()
    report: dict[str, Any] = {"links": _summary(ours), "bare": _summary(bare)}
    report["ratio"] = round(report["links"]["round_trip_median_us"] / report["bare"]["round_trip_median_us"], 2)
    return report


def events(key: ClusterKey | None, seconds: float) -> dict[str, float]:
    """Measure events per second, by events in a message."""
    report = {}
    with _linked(key) as (links, pipe, _, _):
        links.send("peer", _event())
        for batch in (1, 100, 10_000):
            message = _event(batch)
            middle, last = (_with_epoch(message, epoch) for epoch in (2, 3))
            start, sent = time.perf_counter(), 0
            pipe.send("count")
            while time.perf_counter() < start + seconds:
                links.wait_for_room("peer", give_up=lambda: False)
                links.send("peer", middle)
                sent += batch
            links.send("peer", last)
            pipe.recv()
            report[f"in_batches_of_{batch}"] = float(round(sent / (time.perf_counter() - start)))
    return report


def _with_epoch(message: Events, epoch: int) -> Events:
    return Events("bench", epoch, 1, message.drops, message.states, message.attempts, message.causes)


def fetch(key: ClusterKey | None, size: int, repeats: int) -> dict[str, float]:
    """Measure megabytes per second of one content and its ratio to bare, with and without checking its CRC-32.

    The three run in turns. Speeds are those of the best of several repeats; ratios are those of medians.
    """
    seconds: dict[str, list[float]] = {"bare": [], "checked": [], "unchecked": []}
    with _linked(key, size) as (links, _, checksum, _), _bare(key, size) as socket:
        for _ in range(repeats):
            start = time.perf_counter()
            socket.send(b"fetch")
            left = size
            while left:
                left -= len(socket.recv(copy=False).buffer)
            seconds["bare"].append(time.perf_counter() - start)
            for name, expected in (("checked", checksum), ("unchecked", None)):
                start = time.perf_counter()
                wanted = WantedContent(session="bench", drop=1, size=size, checksum=expected, check=False)
                links.fetch("peer", wanted, lambda *_: None)
                seconds[name].append(time.perf_counter() - start)
    report: dict[str, float] = {f"{name}_MB_s": round(size / min(times) / 1e6) for name, times in seconds.items()}
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name in ("checked", "unchecked"):
        report[f"{name}_ratio"] = round(medians["bare"] / medians[name], 2)
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter, and 256 MB in place of 1 GB")
    quick = parser.parse_args().quick
    report: dict[str, Any] = {
        "machine": {"cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "zmq": zmq.zmq_version(),
    }
    with tempfile.TemporaryDirectory() as directory:
        cluster = create(Path(directory) / "keys" / "cluster.key")
        for name, key in (("plain", None), ("curve", cluster)):
            sizes = {"1MB": 10**6, "32MB": 32 * 10**6, **({"256MB": 256 * 10**6} if quick else {"1GB": 10**9})}
            report[name] = {
                "latency": latency(key, 1000 if quick else 5000),
                "events_per_s": events(key, 1.0 if quick else 3.0),
                "fetch": {label: fetch(key, size, 20 if size < 10**8 else 5) for label, size in sizes.items()},
            }
    json.dump(report, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
