"""The page that compares two sessions."""

from typing import Any

import msgspec

from dropflow.errors import LinkError
from dropflow.testing.drawing import fan
from dropflow.testing.fake_manager import FakeManager, manager_with_sessions
from managers.web.session_pages import CompareView, OriginView
from tests.managers.web.reading import Page, ask, read
from tests.managers.web.test_pages import HOSTILE, hostile_graph
from tests.times.made_times import executed, sections_of


def _links(page: Page) -> set[str]:
    return {found.get("href", "") for tag, found in read(page)[0] if tag == "a"}


def test_two_sessions_are_compared(serve: Any) -> None:
    """The page has drops, totals, times and causes of both, and its record as JSON is the same; no states are read."""
    manager = manager_with_sessions()
    manager.refuse("states", LinkError("not asked for"))
    for name in ("failed", "finished"):
        manager.set_times(name, sections_of(executed(fan(40), 3)))
    url = serve(manager)
    page = ask(url, "/sessions/failed/compare?other=finished")
    tags, text = read(page)
    twin = next(found["href"] for tag, found in tags if tag == "link" and found.get("rel") == "alternate")
    view = msgspec.json.decode(ask(url, twin).body, type=CompareView)

    assert page.status == 200
    assert "Both ran the same graph with the same parameters." in text
    for title in ("Totals", "Times by logical node", "Failures by root cause", "no value 1"):
        assert title in text
    assert view.comparison is not None
    assert [one.session for one in (view.comparison.first, view.comparison.second)] == ["failed", "finished"]


def test_a_session_to_compare_with_is_chosen(serve: Any) -> None:
    """Sessions of graphs of the same name come first, a text finds others, and the pages of sessions lead there."""
    manager = manager_with_sessions()
    manager.add(hostile_graph(), "apart")
    url = serve(manager)
    tags, _ = read(ask(url, "/sessions/failed/compare"))
    wanted = [found["href"] for tag, found in tags if tag == "a" and "?other=" in found.get("href", "")]

    assert [link.partition("other=")[2] for link in wanted] == ["running", "finished", "cancelled", "apart"]
    assert "?other=finished" not in ask(url, "/sessions/failed/compare?text=canc").text
    for path in ("/sessions/failed", "/sessions"):
        assert "/sessions/failed/compare" in _links(ask(url, path))
    assert ask(url, "/sessions/failed/compare?other=none").status == 404
    assert ask(url, "/sessions/none/compare").status == 404


def test_a_session_alone_has_nothing_to_compare_with(serve: Any) -> None:
    """The page says so, and how to get another session."""
    manager = FakeManager()
    manager.add(fan(4), "s")

    assert "There is no other session yet." in ask(serve(manager), "/sessions/s/compare").text


def test_names_and_values_are_text(serve: Any) -> None:
    """Markup in names, values and causes is escaped."""
    manager = manager_with_sessions()
    manager.add(hostile_graph(), "apart")
    manager.fail("apart", 0, HOSTILE)
    page = ask(serve(manager), "/sessions/failed/compare?other=apart")

    assert page.status == 200
    assert "<script>alert" not in page.text


def test_a_drop_has_an_origin(serve: Any) -> None:
    """Its page, with a twin in JSON, has the logical nodes and drops that it was made from, by pages, with states."""
    manager = manager_with_sessions()
    manager.set_times("finished", sections_of(executed(fan(40), 3)))
    url = serve(manager)
    path = "/sessions/finished/drops/fan_d_0-0/origin"
    page = ask(url, path)
    tags, text = read(page)
    twin = next(found["href"] for tag, found in tags if tag == "link" and found.get("rel") == "alternate")
    view = msgspec.json.decode(ask(url, twin).body, type=OriginView)

    assert path in _links(ask(url, "/sessions/finished/drops/fan_d_0-0"))
    assert "Upstream of it are 2 drops of 3 logical nodes, back to 1 root." in text
    assert [one.oid for one in view.origin.drops] == ["fan_d_0-0", "fan_a_0-0", "fan_r_0"]
    assert "CRC-32" in text
    assert {one.state for one in view.origin.drops} == {"COMPLETED"}
    failed = msgspec.json.decode(ask(url, "/sessions/failed/drops/fan_d_0-1/origin.json").body, type=OriginView)
    assert [one.state for one in failed.origin.drops] == ["ERROR", "ERROR", "COMPLETED"]
    assert ">in error<" in ask(url, "/sessions/failed/drops/fan_d_0-1/origin").text
    assert ask(url, f"{path}?offset=2&limit=1").text.count("data-row=") == 1
    assert ask(url, "/sessions/finished/drops/none/origin").status == 404
