"""A slow, obvious model of deployments: which steps a composite may take after which answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from managers.machine_calls import Answered, Ask, Unanswered

__all__ = ["STEPS", "DeploymentRecord"]

STEPS = ("prepare", "start", "undo")


@dataclass
class DeploymentRecord:
    """The requests of one deployment, by step and child, with their answers: True, False, or None without one.

    A deployment of a call `submit` goes through all steps; those that a master orders one by one are not recorded.
    """

    session: str
    epoch: int
    children: frozenset[str]
    """URLs of the children of its nodes."""
    steps: dict[str, dict[str, bool | None]] = field(default_factory=lambda: {"prepare": {}, "start": {}, "undo": {}})

    def ask(self, ask: Ask) -> None:
        """Check a request: nothing starts before all are prepared, and nothing is undone without a failure."""
        step = self.steps[ask.operation]
        assert ask.url in self.children, f"{ask.operation} is sent to {ask.url}, which has no part"
        assert ask.url not in step, f"{ask.operation} is sent to {ask.url} twice"
        step[ask.url] = None
        if ask.operation == "start":
            assert self._are_all("prepare"), "a part is started before all are prepared"
            assert not self.steps["undo"], "a part is started after the deployment is undone"
        elif ask.operation == "undo":
            assert not (self._are_all("prepare") and self._are_all("start")), "a deployment that succeeded is undone"

    def answer(self, ask: Ask, event: Answered | Unanswered) -> None:
        """Note an answer; the first counts."""
        if self.steps[ask.operation][ask.url] is None:
            self.steps[ask.operation][ask.url] = isinstance(event, Answered)

    @property
    def is_started(self) -> bool:
        """Whether all children have prepared and started it, and nothing was undone."""
        return self._are_all("prepare") and self._are_all("start") and not self.steps["undo"]

    def check_undone(self) -> None:
        """Check that a deployment that failed is undone on all children to which it was sent."""
        for url in self.steps["prepare"]:
            assert url in self.steps["undo"], f"a deployment that failed is not undone on {url}: {self.steps}"

    def _are_all(self, step: str) -> bool:
        found: Mapping[str, bool | None] = self.steps[step]
        return set(found) == self.children and all(found.values())
