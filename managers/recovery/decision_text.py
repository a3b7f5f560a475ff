"""The changes by a decision about a view, in words for people."""

import numpy as np
import numpy.typing as npt

from dropflow.formatting import plural
from dropflow.graph.physical import PhysicalGraph
from managers.recovery.records import NO_MEMBER, ViewDecision, unpack_column


def explain_decision(graph: PhysicalGraph, decision: ViewDecision) -> str:
    """Return a sentence about a decision, for people.

    Parameters
    ----------
    graph : PhysicalGraph
        The whole graph, as it is placed in the view before.
    """
    placement = unpack_column(decision.placement, np.uint16)
    numbers = {name: number for number, name in enumerate(decision.places)}
    before = np.array([numbers.get(place, NO_MEMBER) for place in graph.places], dtype=np.int32)[graph.part]
    clauses = []
    away = np.zeros(graph.drops, dtype=np.bool_)

    def shares(drops: npt.NDArray[np.bool_]) -> str:
        counts = np.bincount(placement[drops], minlength=len(decision.places)).tolist()
        return _listed([f"{name} ({count:,})" for name, count in zip(decision.places, counts, strict=True) if count])

    for node, what in {
        **{node: f"is lost ({why})" for node, why in decision.lost.items()},
        **dict.fromkeys(decision.left, "has left, as was asked for"),
    }.items():
        was_there = np.array([place == node for place in graph.places], dtype=np.bool_)[graph.part]
        away |= was_there
        count = int(was_there.sum())
        goes = f"{plural(count, 'drop')} {'goes' if count == 1 else 'go'} to {shares(was_there)}"
        clauses.append(f"node {node} {what}: {goes if count else 'it had no drops'}")
    clauses += [f"node {node} has joined" for node in decision.joined]
    moved = (before != placement) & ~away
    if moved.any():
        what = "had not begun and moves" if moved.sum() == 1 else "had not begun and move"
        clauses.append(f"{plural(int(moved.sum()), 'drop')} {what} to {shares(moved)}")
    if decision.retried:
        clauses.append(f"{plural(len(decision.retried), 'failed drop')} tried again, as was asked for")
    again = len(unpack_column(decision.reset, np.int32))
    if again:
        runs = "runs" if again == 1 else "run"
        clauses.append(f"{plural(again, 'completed drop')} {runs} again because their contents were lost")
    if decision.gone:
        files = "file that nothing needs any more is" if decision.gone == 1 else "files that nothing needs any more are"
        clauses.append(f"{decision.gone} {files} gone (with persist set, a file is made again)")
    if decision.is_forced:
        clauses.append("no majority of its voters was needed, as was asked for")
    return "; ".join(clauses) or "all members stay, and nothing moves"


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
