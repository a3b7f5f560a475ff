"""Infrastructure faults of drops, in words: for reports, for `dropflow explain`, and for the end of a session."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from dropflow.errors import WorkerDiedError
from dropflow.failure import Failure
from dropflow.formatting import plural
from dropflow.graph.templates import Kind, Template

__all__ = ["Fault", "culprit", "fault_lines", "fault_note"]


class Fault(msgspec.Struct, frozen=True):
    """An attempt that ended because its process failed, and why."""

    attempt: int
    failure: Failure


def culprit(template: Template, faults: Sequence[Fault]) -> Failure:
    """Return why a drop of `template` is given up after these faults: the last one, with how often that happened."""
    last = faults[-1].failure
    deaths = sum(fault.failure.code == WorkerDiedError.code for fault in faults)
    if last.code != WorkerDiedError.code or deaths == 1:
        return last
    noun = "application" if template.kind is Kind.APP else "data drop"
    text = f"{noun} {template.name!r} ended its worker process {deaths} times; the last time, {last.text}"
    return msgspec.structs.replace(last, text=text, detail="\n".join(fault_lines(faults)))


def fault_lines(faults: Iterable[Fault]) -> Iterator[str]:
    """Yield a line for each fault of a drop, oldest first."""
    for fault in faults:
        kind = "repeated, innocent" if fault.failure.is_innocent else "infrastructure fault"
        yield f"attempt {fault.attempt}: {kind}: {fault.failure.text}"


def fault_note(faults: Iterable[Fault]) -> str:
    """Return how many faults a session had, and how many results were lost with them; empty if there was none."""
    innocent = [fault.failure.is_innocent for fault in faults]
    if not innocent:
        return ""
    lost = sum(innocent)
    text = plural(len(innocent) - lost, "infrastructure fault")
    return f"{text}; {plural(lost, 'result')} lost with a process and computed again" if lost else text
