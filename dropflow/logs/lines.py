"""What the logs of sessions and of managers have in common: which lines match a query, and the form of their text."""

import re
from collections.abc import Callable

from dropflow.logs.records import LogTextQuery, severity

__all__ = ["clean", "matcher"]

_LONGEST = 20_000
_CONTROL = re.compile("\x1b\\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def matcher(query: LogTextQuery) -> Callable[[str, str], bool]:
    """Return a function that returns whether a line with this level and text is wanted."""
    text, least = query.text.lower(), severity(query.level) if query.level else 0

    def matches(level: str, line: str) -> bool:
        return not (least and severity(level) < least) and (not text or text in line.lower())

    return matches


def clean(text: str) -> str:
    """Return a line without control characters; a very long one is cut."""
    text = text.removesuffix("\r")
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}... ({len(text)} characters)"
    return _CONTROL.sub("", text)
