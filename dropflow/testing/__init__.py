"""Helpers for tests of applications and runners; what only dropflow's own tests need is in ``tests``.

Tests of applications and of runners import what they need from here; a module is imported when one of its names
is first used. May import everything of `dropflow` but the command line; nothing of the product may import it.

==============  =======================================================================================================
`attempts`      One attempt of one application on the real executor, without a graph: for tests of applications
`conformance`   Tests of the promises of every runner, for the author of one: see `RunnerConformance` and `outcome_of`
`drawing`       Physical graphs from drawings as text: ``draw("a -> B -> c, c -> D")``
==============  =======================================================================================================
"""

from typing import TYPE_CHECKING

from dropflow.public_names import imported

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
    _MODULES = {
        "dropflow.testing.attempts": ("FAILED", "SKIPPED", "Attempted", "Given", "Wanted", "try_app"),
        "dropflow.testing.conformance": ("RunOutcome", "RunnerConformance", "outcome_of"),
        "dropflow.testing.drawing": ("draw",),
    }

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used."""
        return imported("dropflow.testing", _MODULES, name)

    def __dir__() -> list[str]:
        """List the public names."""
        return __all__
