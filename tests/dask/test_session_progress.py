"""The progress of computations on managers: on a terminal, in a notebook, and nowhere else."""

import io
import os
import re
import sys
import threading
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dropflow.api.client import Client
from dropflow.api.openapi import StreamSlots
from dropflow.builder.results import SubmittedGraph
from dropflow.dask.remote import shown
from dropflow.graph.notebook import HtmlView
from dropflow.testing.drawing import fan
from dropflow.testing.fake_manager import FakeManager
from dropflow.testing.faults import serve
from managers.routes.handlers import api_v1_routes


@pytest.fixture
def manager() -> FakeManager:
    """A node with a session that has begun."""
    found = FakeManager(role="node", nodes=("n1",))
    found.add(fan(4), "dask-1")
    found.advance("dask-1", {0: "COMPLETED", 1: "COMPLETED"})
    return found


@pytest.fixture
def session(manager: FakeManager) -> Iterator[SubmittedGraph]:
    """The session, as a client sees it."""
    with serve(api_v1_routes(manager, StreamSlots(2))) as server, Client(server.url) as client:
        yield SubmittedGraph(client, "dask-1", fan(4))


def test_a_terminal_shows_bars(session: SubmittedGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a real terminal each logical node has a bar, and the last line counts drops; in the end, all is cleared."""
    ours, theirs = os.openpty()
    output = bytearray()

    def read() -> None:
        while True:
            try:
                block = os.read(ours, 4096)
            except OSError:  # Linux raises it when the other end is closed
                return
            if not block:
                return
            output.extend(block)

    reader = threading.Thread(target=read)
    reader.start()
    with monkeypatch.context() as patch, os.fdopen(theirs, "w") as terminal:
        patch.setattr(sys, "stderr", terminal)
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("COLUMNS", "100")
        with shown(session, is_shown=True) as show:
            show(session.detail())
    reader.join(30)
    os.close(ours)

    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.decode())
    detail = session.detail()
    assert f"{detail.settled} of {detail.drops} drops" in plain
    assert "━" in plain
    assert all(node.name in plain for node in detail.logical if node.is_app)
    assert "\x1b[2K" in output.decode()  # cleared


@pytest.mark.parametrize("shows", ["yes", "no"])
def test_elsewhere_nothing_is_written(session: SubmittedGraph, monkeypatch: pytest.MonkeyPatch, shows: str) -> None:
    """A file, or a terminal without `progress`, gets no bars."""
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: shows == "no")
    monkeypatch.setattr(sys, "stderr", stream)

    with shown(session, is_shown=shows == "yes") as show:
        show(session.detail())

    assert stream.getvalue() == ""


def test_a_notebook_shows_the_session_live(
    session: SubmittedGraph, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its state, the numbers of drops and a link, as HTML and as text; each change replaces the display."""
    views: list[HtmlView] = []

    def display(view: HtmlView, *, display_id: bool) -> Any:
        assert display_id
        views.append(view)
        return SimpleNamespace(update=views.append)

    ipython, part = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    part.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", part)

    with shown(session, is_shown=True) as show:
        show(session.detail())
        manager.complete("dask-1")
        show(session.detail())

    first, last = (view._repr_mimebundle_() for view in views)
    assert "RUNNING" in first["text/html"]
    assert "2 COMPLETED" in first["text/html"]
    assert "FINISHED" in last["text/html"]
    assert f"{session.client.url}/sessions/dask-1" in last["text/html"]
    assert "dask-1" in last["text/plain"]


def test_ipython_without_a_notebook_is_a_terminal(session: SubmittedGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shell has no kernel, and cannot update what it has shown."""
    ipython = ModuleType("IPython")
    ipython.get_ipython = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setattr(sys, "stderr", io.StringIO())

    with shown(session, is_shown=True) as show:
        show(session.detail())
