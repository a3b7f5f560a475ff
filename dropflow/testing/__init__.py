"""Helpers for tests of applications and runners; what only dropflow's own tests need is in ``tests``.

Tests of applications and of runners import what they need from here; a module is imported when one of its names
is first used. May import everything of `dropflow` but the command line; nothing of the product may import it.

==============  =======================================================================================================
`attempts`      One attempt of one application on the real executor, without a graph: for tests of applications
`conformance`   What every runner promises, as tests for the author of one: see `RunnerConformance` and `outcome_of`
`drawing`       Physical graphs from drawings as text: ``draw("a -> B -> c, c -> D")``
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
