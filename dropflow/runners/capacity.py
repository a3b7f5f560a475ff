"""The processors and the memory that the attempts of a runner, or of all runners of a pool, share.

An attempt begins when the resources that it declares are free. If it declares more than exist, it runs when all are
free: alone.

GPUs are given to attempts by name, in worker processes only (`dropflow.runners.dispatcher`).
"""

import math
from collections.abc import Sequence

import msgspec

from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.tasks import Task
from dropflow.failure import Failure
from dropflow.formatting import format_size, plural
from dropflow.graph.templates import ResourceNeeds, Template, memory_fault, needs_of, unreadable_memory
from dropflow.host.memory import host_memory


class Capacity:
    """The free processors and memory. Used by one thread, or under one lock.

    Parameters
    ----------
    cpus : int
        Number of all processors.
    memory : float
        Bytes of all memory.
    """

    def __init__(self, cpus: int, memory: float = math.inf) -> None:
        self.cpus = cpus
        self.memory = memory
        self._taken = ResourceNeeds(0)

    def admitted(self, needs: ResourceNeeds) -> ResourceNeeds:
        """Return the resources that an attempt takes: those that it needs, or all if it needs more than exist."""
        if needs.cpus > self.cpus or needs.memory > self.memory:
            return ResourceNeeds(self.cpus, min(needs.memory, self.memory))
        return needs

    def fits(self, needs: ResourceNeeds) -> bool:
        """Return whether these resources are free."""
        taken = self._taken
        return taken.cpus + needs.cpus <= self.cpus and (not needs.memory or taken.memory + needs.memory <= self.memory)

    def take(self, needs: ResourceNeeds) -> None:
        """Take the resources of an attempt that begins."""
        self._taken = ResourceNeeds(self._taken.cpus + needs.cpus, self._taken.memory + needs.memory)

    def free(self, needs: ResourceNeeds) -> None:
        """Free the resources of an attempt that has ended."""
        cpus = self._taken.cpus - needs.cpus
        # Sums of floats are not exact: what is left of them would keep out an attempt that takes all memory.
        self._taken = ResourceNeeds(cpus, self._taken.memory - needs.memory if cpus else 0.0)


def judge_memory(failure: Failure, task: Task, spec: ExecutorSpec) -> Failure:
    """Return the failure of an attempt that had too little memory: it is repeated if the next attempt gets more.

    Its hint names the memory that the application declares, and the option that can help.
    """
    declared = needs_of(spec.templates[task.template]).memory
    has_more = (task.memory or declared) < host_memory().limit.bytes
    hint = f"{failure.hint}; it declares {format_size(int(declared)) if declared else 'no'} memory"
    if has_more and not spec.retry_memory:
        hint += ", and --retry-memory 2x tries it again with more kept free for it"
    return msgspec.structs.replace(failure, infrastructure=has_more and bool(spec.retry_memory), hint=hint)


def unusual_needs(templates: Sequence[Template], cpus: int, memory: float) -> tuple[str, ...]:
    """Return a note on each application that declares more resources than exist, or memory that is not a size."""
    notes = []
    for template in templates:
        if text := unreadable_memory(template):
            notes.append(f"{template.name}: {memory_fault(text)}")
        needs = needs_of(template)
        wanted = [plural(needs.cpus, "processor")] if needs.cpus > cpus else []
        wanted += [format_size(int(needs.memory))] if needs.memory > memory else []
        if wanted:
            there = f"{plural(cpus, 'processor')} and {format_size(int(memory))} of memory"
            text = (
                f"{template.name} asks for {' and '.join(wanted)}, and there are {there}: each of its drops runs alone"
            )
            notes.append(text)
    return tuple(notes)
