"""How long the next attempts of a session are expected to take, and how much to write, from those that have ended."""

from collections.abc import Iterable, Sequence

from dropflow.engine.api import Task
from dropflow.engine.runners.backlog import AHEAD_SECONDS
from dropflow.graph.templates import Template

__all__ = ["ExpectedSeconds"]

_UNKNOWN = float("inf")
_WEIGHT = 0.3
"""What the last attempt counts in the mean."""
_SECONDS_PER_BYTE = AHEAD_SECONDS / (4 << 20)
"""What a worker is given ahead writes 4 MB at most. That is held until others read it: with 20 ms for attempts of any
size, ten times as many values of 0.5 MB were held as the order of execution needs."""


class ExpectedSeconds:
    """Exponentially weighted means of the seconds of attempts, and of the bytes that they write, by template.

    An attempt of a template that none has ended of takes as long as other applications, or other data, did last. The
    two are apart: data without producers take nearly no time, and say nothing about applications.

    Parameters
    ----------
    templates : sequence of Template
        Those of the session.
    """

    __slots__ = ("_kinds", "_of_kind", "_of_template", "_written")

    def __init__(self, templates: Sequence[Template]) -> None:
        self._kinds = [int(template.kind) for template in templates]
        self._of_kind = dict.fromkeys(self._kinds, _UNKNOWN)
        self._of_template = [_UNKNOWN] * len(templates)
        self._written = [0.0] * len(templates)

    def note(self, template: int, seconds: float, written: int = 0) -> None:
        """Add the time of an attempt that has ended, and the bytes that it wrote."""
        kind = self._kinds[template]
        before = self._of_template[template]
        self._written[template] = written if before == _UNKNOWN else _mean(self._written[template], written)
        self._of_template[template] = _mean(self._of_template[template], seconds)
        self._of_kind[kind] = _mean(self._of_kind[kind], seconds)

    def of(self, template: int) -> float:
        """Return the seconds that an attempt is expected to take; inf if nothing is known."""
        seconds = self._of_template[template]
        return self._of_kind[self._kinds[template]] if seconds == _UNKNOWN else seconds

    def cost(self, template: int) -> float:
        """Return what an attempt counts when a worker is given it ahead: its seconds, and some for what it writes.

        What it writes alone does not make it a long one, behind which no other attempt waits.
        """
        return self.of(template) + min(self._written[template] * _SECONDS_PER_BYTE, AHEAD_SECONDS)

    def together(self, tasks: Iterable[Task]) -> float:
        """Return what attempts count together when a worker is given them ahead."""
        return sum(self.cost(task.template) for task in tasks)


def _mean(before: float, seconds: float) -> float:
    return seconds if before == _UNKNOWN else before + _WEIGHT * (seconds - before)
