"""The picture of a live graph in a browser without a GPU, and what its watchers cost the server. Prints JSON.

A server in another process has a session of each size, whose drops change state: 5,000 a second. Chromium (headless,
software rendering) opens its graph at 1440 x 900.

* ``paint``: seconds from the beginning of the navigation until the graph is drawn, the median of three.
* ``far``, ``middle``, ``near``: frames per second for four seconds in which the picture is moved in every frame and
  zoomed a little in every fifth, while states change; at the zoom that shows all, at cells of 7 pixels, and at drops
  with names and edges. ``still``: the same while nothing is moved, so only changes are drawn. ``blank``: frames of an
  empty page in the same browser, which is the most that there can be.
* ``timeline``: the same for its timeline, with ``paint`` until it is drawn: frames per second ``far`` (two steps nearer
  than all of it) and ``near`` (some hundred attempts), while it is moved and attempts end: all of them in two minutes.
* ``load``: the number of processes that ran or waited for a processor before the measurement, over one minute.
* ``heap``: megabytes of JavaScript objects and array buffers after that. ``memory``: megabytes that only the process
  of the page has (its unique set size), of them ``memory_blank`` with an empty page.
* ``bytes``: kilobytes of drawing and edges as they are sent.
* ``watchers``: for 1, 10 and 100 clients of the event stream, seconds of processor time of the server per second, over
  five seconds, and kilobytes per second of one client. ``0`` is what it takes to change the states.

Run: ``python benchmarks/web.py [--sizes 10000 100000] [--quick]``.
"""

import argparse
import http.client
import json
import multiprocessing
import platform
import statistics
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import psutil
from msgspec import structs

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dropflow.api.auth import AccessRules
from dropflow.api.bottle_app import make_app
from dropflow.api.contents_answer import Download
from dropflow.api.operations import TIMES
from dropflow.api.requests import ALL_TIMES, DropStates, TimesQuery
from dropflow.api.routes import Limits, StreamSlots
from dropflow.api.serving import RestServer
from dropflow.api.session_records import SessionDetail
from dropflow.graph.physical import PhysicalGraph
from dropflow.times.octets import pack_times
from managers.node.session_records import StateLog
from managers.routes.handlers import api_v1_routes
from managers.state_hub import StateHub
from managers.web.pages import page_routes
from tests.browser import open_browser
from tests.fake_manager import FakeManager
from tests.regular_graphs import triples
from tests.times.made_times import executed, sections_of

_CHANGES = 5000
_EVERY = 0.1
_ENDING = 120.0
"""Seconds until all attempts have ended."""
_STREAMS = 128


class ChangingManager(FakeManager):
    """One session, whose drops go from waiting over active to completed or, some of them, to error, and begin again."""

    def __init__(self, graph: PhysicalGraph) -> None:
        super().__init__()
        self._graph = graph
        self._log = StateLog(np.arange(graph.drops, dtype=np.int32))
        self._now = np.zeros(graph.drops, dtype=np.uint8)
        self._log.update(self._now)
        self._version = 1
        self._attempts = sections_of(executed(graph, 3, workers=4))
        self._began = time.monotonic()
        self._turn = threading.Condition()
        threading.Thread(target=self._change, daemon=True).start()

    def _change(self) -> None:
        rng, at = np.random.default_rng(1), 0
        step = int(_CHANGES * _EVERY) // 2
        while True:
            threading.Event().wait(_EVERY)
            with self._turn:
                rows = np.arange(at, at + step) % self._graph.drops
                self._now[rows] = np.where(self._now[rows] == 0, 1, 0)
                done = (rows - 4 * step) % self._graph.drops
                self._now[done] = np.where(rng.random(step) < 0.002, 3, 2)
                at += step
                self._version += 1
                self._log.update(self._now)
                self._turn.notify_all()

    def session(self, session: str) -> SessionDetail:
        """Return the session; it never ends."""
        drops = self._graph.drops
        return SessionDetail(
            session=session,
            graph="bench",
            status="RUNNING",
            version=self._version,
            drops=drops,
            whole=drops,
            nodes=("n",),
        )

    def watch(self, session: str, *, version: int, seconds: float) -> SessionDetail:
        """Wait for a change."""
        with self._turn:
            self._turn.wait_for(lambda: self._version != version, timeout=seconds)
        return self.session(session)

    def states(self, session: str, *, since: str = "") -> DropStates:
        """Return what has changed."""
        with self._turn:
            return self._log.since(since)

    def times(self, session: str, query: TimesQuery = ALL_TIMES) -> Download:
        """Return the attempts that have ended, from those on that are known."""
        share = min((time.monotonic() - self._began + 10) / _ENDING, 1.0)
        chunks = []
        for section in self._attempts:
            done, first = int(share * section.total), query.known.get(section.node, 0)
            chunks.append(
                pack_times(structs.replace(section, first=first, total=done, records=section.records[first:done]))
            )
        return Download(name=f"{session}.times", content_type=TIMES.gives, size=None, chunks=iter(chunks))

    def graph(self, session: str) -> PhysicalGraph:
        """Return the graph."""
        return self._graph


def _serve(pipe: Connection, drops: int) -> None:
    manager = ChangingManager(triples(drops, 8))
    streams = StreamSlots(_STREAMS)
    hub = StateHub(manager)
    app = make_app(
        [*api_v1_routes(manager, streams, hub=hub), *page_routes(manager, hub)], AccessRules(token=None), Limits()
    )
    server = RestServer(app, streams=streams, stream_limit=_STREAMS, port=0, open_to_all=True)
    server.start()
    pipe.send(server.url)
    pipe.recv()
    server.close()


_MEASURE = """async ([selector, seconds, keys]) => {
  const canvas = document.querySelector(selector);
  let frames = 0;
  const began = performance.now();
  await new Promise((done) => {
    const frame = (now) => {
      if (now - began > seconds * 1000) return done();
      frames += 1;
      if (keys) {
        const turn = frames % 10; // each move is undone at the same zoom, so that the picture stays in view
        const key = keys[turn === 8 ? 2 : turn === 9 ? 3 : turn < 4 ? 0 : 1];
        canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      }
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  return frames / ((performance.now() - began) / 1000);
}"""
_READY = """(selector) => new Promise((done) => {
  const look = () => document.querySelector(selector)
    ? requestAnimationFrame(() => done(performance.now() / 1000)) : requestAnimationFrame(look);
  look();
})"""


_GRAPH_KEYS = ("ArrowRight", "ArrowLeft", "+", "-")
_TIMELINE_KEYS = ("d", "a", "w", "s")


def _frames(page: Any, seconds: float, keys: tuple[str, ...] | None = _GRAPH_KEYS) -> float:
    return round(page.evaluate(_MEASURE, ["canvas", seconds, keys]), 1)


def _browser(url: str, seconds: float, shots: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with open_browser() as browser:
        context = browser.new_context(base_url=url, viewport={"width": 1440, "height": 900})
        page = context.new_page()
        page.goto("about:blank")
        found["blank"] = round(
            page.evaluate(_MEASURE.replace("canvas.dispatch", "0 && canvas.dispatch"), ["x", 2, None]), 1
        )
        found["memory_blank"] = _memory()
        times = []
        for _ in range(3):
            page.goto("about:blank")
            page.goto("/sessions/bench/graph", wait_until="commit")
            times.append(page.evaluate(_READY, "#graph[data-ready] canvas[data-distance]"))
        found["paint"] = round(statistics.median(times), 2)
        page.wait_for_timeout(1500)
        canvas = page.locator("#graph canvas")
        canvas.focus()
        for name, presses in (("far", 0), ("middle", 8), ("near", 14)):
            page.keyboard.press("f")
            page.wait_for_timeout(1000)
            for _ in range(presses):
                page.keyboard.press("+")
            while name == "near" and canvas.get_attribute("data-distance") != "near":
                page.keyboard.press("+")
                page.wait_for_timeout(100)
            page.wait_for_timeout(1000)
            found[name] = _frames(page, seconds)
            found[f"{name}_is"] = canvas.get_attribute("data-distance")
            if shots:
                page.screenshot(path=f"{shots}-{name}.png")
        page.keyboard.press("f")
        page.wait_for_timeout(1000)
        found["still"] = _frames(page, seconds, None)
        session = context.new_cdp_session(page)
        session.send("HeapProfiler.collectGarbage")
        heap = session.send("Runtime.getHeapUsage")
        found["heap"] = round((heap["usedSize"] + heap.get("backingStorageSize", 0)) / 1e6, 1)
        found["memory"] = _memory()
        found["timeline"] = _timeline(page, seconds, shots)
    return found


def _timeline(page: Any, seconds: float, shots: str) -> dict[str, float]:
    page.goto("about:blank")
    page.goto("/sessions/bench/timeline", wait_until="commit")
    found = {"paint": round(page.evaluate(_READY, "#timeline[data-ready=yes] canvas[data-to]"), 2)}
    page.wait_for_timeout(1500)
    page.locator("canvas").focus()
    for name, presses in (("far", 2), ("near", 10)):
        for _ in range(presses):
            page.keyboard.press("w")
        page.wait_for_timeout(1000)
        found[name] = _frames(page, seconds, _TIMELINE_KEYS)
        if shots:
            page.screenshot(path=f"{shots}-timeline-{name}.png")
    return found


def _memory() -> float:
    """Return the memory of the largest process of a page, in megabytes."""
    pages = [child for child in psutil.Process().children(recursive=True) if "--type=renderer" in child.cmdline()]
    return round(max((page.memory_full_info().uss for page in pages), default=0) / 1e6, 1)


def _sizes(url: str) -> dict[str, float]:
    found = {}
    for name in ("drawing", "edges"):
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        connection.request("GET", f"/sessions/bench/graph/{name}", headers={"Accept-Encoding": "gzip"})
        found[name] = round(len(connection.getresponse().read()) / 1e3, 1)
        connection.close()
    return found


def _watchers(url: str, process: psutil.Process, seconds: float) -> dict[str, Any]:
    """Return the processor time of the server with so many clients, each in a thread that only reads."""
    found: dict[str, Any] = {}
    for count in (0, 1, 10, 100):
        received = [0] * count
        open_ones: list[http.client.HTTPConnection] = []

        def read(at: int, received: list[int] = received, opened: list[Any] = open_ones) -> None:
            connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
            opened.append(connection)
            connection.request("GET", "/api/v1/sessions/bench/states/events")
            answer = connection.getresponse()
            try:
                while piece := answer.read1(65536):
                    received[at] += len(piece)
            except (OSError, ValueError, AttributeError):
                return  # closed by the benchmark

        for at in range(count):
            threading.Thread(target=read, args=(at,), daemon=True).start()
        threading.Event().wait(2.0)
        before, began, bytes_before = process.cpu_times(), time.monotonic(), sum(received)
        threading.Event().wait(seconds)
        after, wall = process.cpu_times(), time.monotonic() - began
        used = (after.user + after.system - before.user - before.system) / wall
        each = (sum(received) - bytes_before) / wall / max(count, 1) / 1e3
        found[str(count)] = {"processor": round(used, 3), "kilobytes": round(each, 1)}
        for connection in open_ones:
            if connection.sock is not None:
                connection.sock.close()
        threading.Event().wait(1.5)
    return found


def main() -> int:
    """Measure all sizes, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 10_000, 100_000])
    parser.add_argument("--quick", action="store_true", help="one second each, and no watchers")
    parser.add_argument("--shots", default="", help="beginning of the names of screenshots")
    given = parser.parse_args()
    seconds = 1.0 if given.quick else 4.0
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "load": round(psutil.getloadavg()[0], 1),
    }
    context = multiprocessing.get_context("spawn")
    for drops in given.sizes:
        mine, theirs = context.Pipe()
        server = context.Process(target=_serve, args=(theirs, drops), daemon=True)
        server.start()
        url = mine.recv()
        try:
            result = {"bytes": _sizes(url), **_browser(url, seconds, given.shots and f"{given.shots}-{drops}")}
            if not given.quick:
                result["watchers"] = _watchers(url, psutil.Process(server.pid), 5.0)
            found[f"{drops:,}"] = result
        finally:
            mine.send("end")
            server.join(timeout=10)
            server.kill()
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
