"""The fields by which EAGLE and DALiuGE steer a partition, as options of a plan."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from dropflow.problems import Problem
from translator.problem_codes import problem

__all__ = ["STEERING_FIELDS", "steering"]

_UNLIMITED_MEMORY = 1000.0
"""The default of ``max_mem`` in DALiuGE, where no drop says how much it needs: no limit."""

_SWARM, _LEADING = 40, 30
"""Defaults of ``swarm_size`` and ``topk``."""

_MOST_STEPS = 100_000

STEERING_FIELDS = (
    *("max_cpu", "max_mem", "deadline", "time_greedy", "ptype", "min_goal", "num_islands"),
    *("topk", "swarm_size"),
)
"""Fields that `steering` reads."""


def steering(given: Mapping[str, Any], found: list[Problem]) -> dict[str, Any]:
    """Return options of `translator.stage_options.PartitionOptions` from fields of DALiuGE.

    Parameters
    ----------
    given : mapping
        Values by the name of the field, as numbers or texts. Empty ones, and ``None`` and ``null``, count as absent.
    found : list of Problem
        PT002 is added for each value that cannot be used.
    """
    options: dict[str, Any] = {}
    for field, (low, high, apply) in _FIELDS.items():
        value = given.get(field)
        if value is None or (isinstance(value, str) and value.strip() in ("", "None", "null")):
            continue
        number = _number(value)
        if number is None or not low <= number <= high:
            text = f"{field} is {str(value)[:40]!r}, expected a number from {low:g} to {high:g}"
            found.append(problem("PT002", text, where=field, hint="leave it out for the default"))
        else:
            options |= apply(number)
    swarm, leading = options.pop("swarm", None), options.pop("leading", None)
    if swarm is not None or leading is not None:
        steps = (_SWARM if swarm is None else swarm) * (_LEADING if leading is None else leading)
        if (swarm or _SWARM, leading or _LEADING) != (_SWARM, _LEADING):
            options["steps"] = min(steps, _MOST_STEPS)
    return options


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


_Apply = Callable[[float], dict[str, Any]]


def _memory(number: float) -> dict[str, Any]:
    return {} if number in (0, _UNLIMITED_MEMORY) else {"memory": number}


_FIELDS: Mapping[str, tuple[float, float, _Apply]] = MappingProxyType(
    {
        "max_cpu": (0, 1_000_000, lambda number: {"dop": int(number)}),
        "max_mem": (0, 1e18, _memory),
        "deadline": (1e-9, 1e12, lambda number: {"deadline": number}),
        "time_greedy": (0, 100, lambda number: {"greediness": number}),
        "ptype": (0, 1_000_000, lambda number: {"method": "recursive" if number else "best"}),
        "min_goal": (0, 1, lambda number: {"goal": "moved" if number else "cut"}),
        "num_islands": (0, 10_000, lambda number: {"islands": max(int(number), 1)}),
        "topk": (1, 10_000, lambda number: {"leading": int(number)}),
        "swarm_size": (1, 10_000, lambda number: {"swarm": int(number)}),
    }
)
