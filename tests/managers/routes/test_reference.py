"""The page of the REST interface is complete."""

import re
from pathlib import Path

from dropflow.api.auth import AccessRules
from dropflow.api.http_server import ConnectionLimits
from dropflow.api.openapi import Limits, StreamSlots
from dropflow.testing.fake_manager import FakeManager
from dropflow.web.sign_in import login_routes
from managers.routes.daliuge import daliuge_routes
from managers.routes.handlers import api_v1_routes
from managers.routes.metrics import metrics_routes

_PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "rest.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| ([A-Z, ]+) \| `(/[^`]*)`", re.MULTILINE)


def test_every_path_is_documented_and_every_documented_path_is_served() -> None:
    """The tables of the page and the routes have the same paths, and for our own paths the same methods."""
    manager = FakeManager()
    ours = [*api_v1_routes(manager, StreamSlots(1)), *metrics_routes(manager), *login_routes(AccessRules(token=None))]
    theirs = daliuge_routes(manager)
    rows = {(method, path) for methods, path in _ROW.findall(_PAGE) for method in methods.split(", ")}
    served = {(route.method, route.path) for route in (*ours, *theirs)}

    assert rows <= served
    assert {(route.method, route.path) for route in ours if not route.path.startswith("/login.")} <= rows
    assert [route.path for route in theirs if f"`{route.path}`" not in _PAGE] == []


def test_the_limits_are_those_of_the_page() -> None:
    """The page states the limits that a server has."""
    limits = Limits()

    assert f"{limits.body // 2**20} MB" in _PAGE
    assert f"{limits.graph // 2**20} MB" in _PAGE
    assert f"{limits.depth} levels" in _PAGE
    assert f"{limits.drops // 10**6} million drops" in _PAGE
    assert f"{limits.streams} event streams" in _PAGE
    assert f"{limits.together // 2**20} MB of memory together" in _PAGE


def test_the_connection_limits_are_those_of_the_page() -> None:
    """The page states the number of connections and their time limits."""
    limits, page = ConnectionLimits(), " ".join(_PAGE.split())

    assert f"{limits.most} connections, {limits.per_address} of them from one address" in page
    assert f"the head of a request takes {limits.head:g} seconds" in page
    assert f"transferred for {limits.still:g} seconds" in page
    assert f"without a credential takes {limits.body:g} seconds" in page
    assert f"{limits.kept:g} seconds after the last answer" in page
