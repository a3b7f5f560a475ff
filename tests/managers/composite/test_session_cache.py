"""The cache of what children reported about sessions."""

from typing import Literal

from dropflow.api.records import SessionDetail
from managers.composite.children import ChildView, MachineTime
from managers.composite.session_cache import SessionCache


def _child(name: str, state: Literal["alive", "suspect", "lost"] = "alive", text: str = "") -> ChildView:
    return ChildView(
        url=f"http://{name}",
        name=name,
        role="node",
        state=state,
        text=text,
        is_asked=state == "alive",
        is_unfit=False,
        nodes=(),
    )


def _report(node: str, *, version: int = 1, settled: int = 0) -> SessionDetail:
    return SessionDetail(
        session="s",
        graph="g",
        status="RUNNING",
        epoch=1,
        version=version,
        drops=10,
        settled=settled,
        nodes=(node,),
        whole=20,
    )


def _cache() -> SessionCache:
    time = MachineTime(offset=0.0, period=1.0)
    time.read(5.0)
    cache = SessionCache(time)
    for name in ("a", "b"):
        cache.note(_child(name), _report(name), since=cache.answers)
    return cache


def test_sessions_without_news_are_not_merged_again() -> None:
    """A composite with many sessions that are over merges only the others each second."""
    cache, children = _cache(), {child.url: child for child in (_child("a"), _child("b"))}
    first = cache.merged("s", children)
    cache.note(_child("a"), _report("a"), since=cache.answers)
    assert cache.merged("s", children) is first

    cache.note(_child("a"), _report("a", version=2, settled=3), since=cache.answers)
    second = cache.merged("s", children)
    assert first is not None
    assert second is not None
    assert (second.settled, second.version) == (3, first.version + 1)


def test_a_silent_child_makes_another_version_and_longer_silence_does_not() -> None:
    """The version grows when a child is silent; the text, which has the time, changes without it."""
    cache, a, b = _cache(), _child("a"), _child("b")
    first = cache.merged("s", {a.url: a, b.url: b})
    silent = _child("b", "lost", "does not answer (for 15 s)")
    second = cache.merged("s", {a.url: a, b.url: silent})
    third = cache.merged("s", {a.url: a, b.url: _child("b", "lost", "does not answer (for 16 s)")})

    assert first is not None
    assert second is not None
    assert third is not None
    assert second.version == third.version == first.version + 1
    assert "for 15 s" in second.notes[0]
    assert "for 16 s" in third.notes[0]


def test_open_drops_are_those_of_all_parts() -> None:
    """Sessions that are too small to be changed are told apart without merging them."""
    cache = _cache()
    assert cache.open_drops("s") == 20
    cache.note(_child("a"), _report("a", version=2, settled=10), since=cache.answers)
    assert (cache.open_drops("s"), cache.open_drops("other")) == (10, 0)
