"""What a torture has done so far."""

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["Figures"]


@dataclass
class Figures:
    """What was killed or cut, and how much was repeated.

    Attributes
    ----------
    kills : Counter of str
        Signals to processes, by what the process was.
    cuts : Counter of str
        Network failures.
    sessions : int
        Sessions that ended as they had to.
    repeated : int
        Attempts beyond the number of tries.
    records : int
        Records of histories that were checked.
    """

    kills: Counter[str] = field(default_factory=Counter)
    cuts: Counter[str] = field(default_factory=Counter)
    sessions: int = 0
    repeated: int = 0
    records: int = 0

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {what}" for what, count in sorted(self.kills.items()))
        cuts = ", ".join(f"{count} {what}" for what, count in sorted(self.cuts.items()))
        return (
            f"{self.sessions} sessions, {self.kills.total()} kills ({kinds}), {self.cuts.total()} network failures "
            f"({cuts}), {self.repeated} attempts repeated, {self.records} records of histories"
        )
