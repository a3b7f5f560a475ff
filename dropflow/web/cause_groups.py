"""Groups root causes whose texts are equal but for numbers: the same failure of forty instances is shown once.

Pages, commands and reports all group by `causes`.
"""

import hashlib
import json
import re
from collections.abc import Sequence

import msgspec

from dropflow.api.session_records import FailureInfo
from dropflow.formatting import format_count, plural

_NUMBER = re.compile(r"(?:(?<!\w)-)?(?:0[xX][0-9a-fA-F]+|\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?)")
_ANY = "{n}"


class Cause(msgspec.Struct, frozen=True):
    """Failures whose texts are equal but for numbers, and so are the names of their logical nodes.

    A physical graph that was written by a program has a logical node for each drop: ``antenna 1``, ``antenna 2``.

    Attributes
    ----------
    first : FailureInfo
        The most harmful of them, which is shown.
    rest : tuple of FailureInfo
        The others.
    count : int
        Drops in ERROR because of any of them; of a lost node, the drops that are lost.
    took_along : int
        Drops among these that did not fail by themselves.
    """

    first: FailureInfo
    rest: tuple[FailureInfo, ...]
    count: int
    took_along: int = 0

    @property
    def text(self) -> str:
        """The text of the failure; where the failures have different numbers, ``{n}`` stands for them."""
        return _common([failure.text for failure in (self.first, *self.rest)])

    @property
    def name(self) -> str:
        """The name of the logical node, or of the lost node; ``{n}`` stands for numbers in which the names differ."""
        return _common([failure.name for failure in (self.first, *self.rest)])

    @property
    def is_varied(self) -> bool:
        """Whether the failures have different numbers in their texts."""
        return any(failure.text != self.first.text for failure in self.rest)

    @property
    def harm(self) -> str:
        """A text about how many drops failed, were taken along, or are lost."""
        if not self.first.drop:
            return f"{plural(self.count, 'drop')} lost" if self.count else ""
        own = self.count - self.took_along
        along = f"took {format_count(self.took_along)} along" if self.took_along else ""
        return ", ".join(part for part in (f"{format_count(own)} failed" if own else "", along) if part)

    @property
    def keys(self) -> str:
        """The failures as a list in JSON: the row of each drop, or the name of the lost node."""
        failures = (self.first, *self.rest)
        return json.dumps([failure.row if failure.row >= 0 else failure.drop or failure.name for failure in failures])

    @property
    def row(self) -> str:
        """Identifies the cause on a page, and does not change when more failures are added."""
        return hashlib.blake2b(repr(_words(self.first)).encode(errors="replace"), digest_size=8).hexdigest()


def causes(failures: Sequence[FailureInfo]) -> tuple[Cause, ...]:
    """Return `failures` grouped by their texts without numbers, the most harmful group first.

    Within a group their order is kept.
    """
    alike: dict[tuple[str, ...], list[FailureInfo]] = {}
    for failure in failures:
        alike.setdefault(_words(failure), []).append(failure)
    groups = [
        Cause(
            first,
            tuple(rest),
            sum(failure.count for failure in (first, *rest)),
            sum(failure.took_along for failure in (first, *rest)),
        )
        for first, *rest in alike.values()
    ]
    return tuple(sorted(groups, key=lambda cause: -cause.count))


def without_numbers(text: str) -> str:
    """Return a text with ``{n}`` for each number in it."""
    return _NUMBER.sub(_ANY, text)


def _common(texts: Sequence[str]) -> str:
    """Return the first of texts that are equal but for numbers, with ``{n}`` for the numbers that differ."""
    columns = zip(*(_NUMBER.findall(text) for text in texts), strict=False)
    varies = iter([len(set(column)) > 1 for column in columns])
    return _NUMBER.sub(lambda match: _ANY if next(varies, False) else match[0], texts[0])


def _words(failure: FailureInfo) -> tuple[str, ...]:
    # Each lost node is a separate cause, even with the same text.
    name, place = (without_numbers(failure.name), "") if failure.drop else (failure.name, failure.node)
    text, hint = without_numbers(failure.text), without_numbers(failure.hint)
    return (name, failure.code, failure.kind, text, hint, place)
