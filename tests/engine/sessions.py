"""Sessions of tests, made from options of their parts."""

from typing import Any

from dropflow.engine.api import ContentRepository, Runner
from dropflow.engine.session import Execution, Resources, Session, Watch
from dropflow.graph.physical import PhysicalGraph

_KINDS = (Execution, Resources, Watch)


def build_session(graph: PhysicalGraph, repository: ContentRepository, runner: Runner, **options: Any) -> Session:
    """Return a session that has not begun; options are fields of its parts, and its continuation."""
    given = {"graph": graph, "repository": repository, "runner": runner, "session": "s", "directory": "/nowhere"}
    given |= options
    continuation = given.pop("continuation", None)
    work, place, watch = (
        kind(**{name: given.pop(name) for name in tuple(given) if name in kind.__dataclass_fields__}) for kind in _KINDS
    )
    assert not given, f"no part of a session has the options {', '.join(given)}"
    return Session(work, place, watch=watch, continuation=continuation)
