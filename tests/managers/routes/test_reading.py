"""GET changes nothing, with any path, query and headers."""

import re
from typing import Any

import pytest

from dropflow.api.auth import AccessRules, cookie_value
from dropflow.api.openapi import Limits, StreamSlots
from dropflow.api.records import DropQuery
from dropflow.testing.fake_manager import FakeManager, manager_with_sessions
from dropflow.testing.faults import ask, serve
from managers.service import manager_routes

_TOKEN = "a-token"  # noqa: S105 - a token of the tests
_CHANGES = (
    "submit",
    "prepare",
    "start",
    "undo",
    "cancel",
    "pause",
    "unpause",
    "cancel_drop",
    "delete",
    "add_child",
    "remove_child",
)
_QUERY = "?sessionId=failed&session=x&anew=true&url=http://127.0.0.1:1&_method=DELETE&action=delete&dlg_mgr_deploy=1"


class _RecordingManager:
    """A manager that records which of its methods are called."""

    def __init__(self, manager: FakeManager) -> None:
        self._manager = manager
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.called.add(name)
        return getattr(self._manager, name)


@pytest.mark.parametrize("query", ["", _QUERY])
def test_nothing_is_changed_by_get(query: str) -> None:
    """Every route that GET reaches is called with the token and with the cookie, and changes nothing."""
    recording, stopped, streams, access = (
        _RecordingManager(manager_with_sessions()),
        [],
        StreamSlots(4),
        AccessRules(token=_TOKEN),
    )
    manager: Any = recording
    routes = manager_routes(manager, streams, access, stop=lambda: stopped.append(True), limits=Limits(streams=4))
    paths = [route.path for route in routes if route.method == "GET" and not route.path.endswith("/events")]
    drop = manager_with_sessions().drops("failed", DropQuery(limit=1)).drops[0].oid
    with serve(routes, access=access, streams=streams) as server:
        for path in paths:
            target = re.sub(r"\{(\w+)\}", lambda name: {"session": "failed", "drop": drop}.get(name[1], "x"), path)
            for headers in ({"Authorization": f"Bearer {_TOKEN}"}, {"Cookie": f"dropflow={cookie_value(_TOKEN)}"}):
                status = ask(server.url, "GET", target + query, headers=headers | {"Accept": "text/html"}).status
                assert status not in ({401, 500} if path == "/hop" else {401, 403, 500}), path  # to no known server

    assert len(paths) > 50
    assert recording.called.isdisjoint(_CHANGES)
    assert stopped == []
