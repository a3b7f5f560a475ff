"""Helpers for tests: of dropflow itself, and of applications.

Tests of applications and of runners import what they need from here; a module is imported when one of its names
is first used. The modules of this package also have strict fakes, a virtual clock and Hypothesis strategies for the
tests of dropflow.

May import everything of `dropflow` but the command line; nothing of the product may import it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dropflow.testing.attempts import FAILED, SKIPPED, Attempted, Given, Wanted, try_app
    from dropflow.testing.drawing import draw
    from dropflow.testing.runner_conformance import RunnerConformance, RunOutcome, outcome_of

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
        runners = dict.fromkeys(("RunOutcome", "RunnerConformance", "outcome_of"), "runner_conformance")
        module = {"draw": "drawing", **runners}.get(name, "attempts")
        value = getattr(import_module(f"dropflow.testing.{module}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """List the public names."""
        return __all__
