"""How long the next attempts of a session are expected to take, from those that have ended."""

from collections.abc import Iterable, Sequence

from dropflow.engine.api import Task
from dropflow.graph.templates import Template

__all__ = ["ExpectedSeconds"]

_UNKNOWN = float("inf")
_WEIGHT = 0.3
"""What the last attempt counts in the mean."""


class ExpectedSeconds:
    """Exponentially weighted means of the seconds of attempts, by template.

    An attempt of a template that none has ended of takes as long as other applications, or other data, did last. The
    two are apart: data without producers take nearly no time, and say nothing about applications.

    Parameters
    ----------
    templates : sequence of Template
        Those of the session.
    """

    __slots__ = ("_kinds", "_of_kind", "_of_template")

    def __init__(self, templates: Sequence[Template]) -> None:
        self._kinds = [int(template.kind) for template in templates]
        self._of_kind = dict.fromkeys(self._kinds, _UNKNOWN)
        self._of_template = [_UNKNOWN] * len(templates)

    def note(self, template: int, seconds: float) -> None:
        """Add the time of an attempt that has ended."""
        kind = self._kinds[template]
        self._of_template[template] = _mean(self._of_template[template], seconds)
        self._of_kind[kind] = _mean(self._of_kind[kind], seconds)

    def of(self, template: int) -> float:
        """Return the seconds that an attempt is expected to take; inf if nothing is known."""
        seconds = self._of_template[template]
        return self._of_kind[self._kinds[template]] if seconds == _UNKNOWN else seconds

    def together(self, tasks: Iterable[Task]) -> float:
        """Return the seconds that attempts are expected to take one after the other."""
        return sum(self.of(task.template) for task in tasks)


def _mean(before: float, seconds: float) -> float:
    return seconds if before == _UNKNOWN else before + _WEIGHT * (seconds - before)
