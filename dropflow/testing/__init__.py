"""Helpers for tests: of dropflow itself, and of applications.

Tests of applications and of runners import what they need from here; a module is imported when one of its names
is first used. May import everything of `dropflow` but the command line; nothing of the product may import it.

==============  =======================================================================================================
`attempts`      One attempt of one application on the real executor, without a graph: for tests of applications
`conformance`   What every runner promises, as tests for the author of one: see `RunnerConformance` and `outcome_of`
`drawing`       Physical graphs from drawings as text: ``draw("a -> B -> c, c -> D")``
`virtual`       A runner whose attempts take virtual time: no thread, no process, no waiting
`faults`        A TCP proxy that delays, throttles, stalls and cuts connections, as drawn from a seed
`fake_manager`  A manager in memory whose sessions change only when a test changes them, for tests of routes, pages and
                clients
`fake_session`  A session of a fake manager: drops whose states a test sets, and the records that are made of them
`strategies`    Hypothesis strategies for physical graphs
==============  =======================================================================================================
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dropflow.testing.attempts import FAILED, SKIPPED, Attempted, Given, Wanted, try_app
    from dropflow.testing.conformance import RunnerConformance, RunOutcome, outcome_of
    from dropflow.testing.drawing import draw

__all__ = [
    "FAILED",
    "SKIPPED",
    "Attempted",
    "Given",
    "RunOutcome",
    "RunnerConformance",
    "Wanted",
    "draw",
    "outcome_of",
    "try_app",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used (PEP 562)."""
        from importlib import import_module  # noqa: PLC0415 - not needed until then

        if name not in __all__:
            raise AttributeError(f"module 'dropflow.testing' has no attribute {name!r}")
        runners = dict.fromkeys(("RunOutcome", "RunnerConformance", "outcome_of"), "conformance")
        module = {"draw": "drawing", **runners}.get(name, "attempts")
        value = getattr(import_module(f"dropflow.testing.{module}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """List the public names."""
        return __all__
