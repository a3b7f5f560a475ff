"""Findings for a page: those of one kind together, so that one mistake in many nodes is read once."""

from collections.abc import Sequence

import msgspec

from dropflow.failure import Problem, Severity
from dropflow.formatting import plural

_WORDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


class FindingGroup(msgspec.Struct, frozen=True):
    """Findings with one code, severity and hint.

    Attributes
    ----------
    code, hint : str
        What they share.
    severity : Severity
        What they share, too.
    text : str
        What is wrong, if it is the same everywhere; else empty.
    places : tuple of (str, str)
        Where, and what is wrong there if that differs; each pair once, in the order of the findings.
    """

    code: str
    severity: Severity
    hint: str
    text: str
    places: tuple[tuple[str, str], ...]


def finding_groups(problems: Sequence[Problem]) -> list[FindingGroup]:
    """Return findings by code, severity and hint, in the order of their first ones."""
    alike: dict[tuple[str, Severity, str], list[Problem]] = {}
    for one in problems:
        alike.setdefault((one.code, one.severity, one.hint), []).append(one)
    found = []
    for (code, severity, hint), some in alike.items():
        texts = {problem.text for problem in some}
        text = some[0].text if len(texts) == 1 else ""
        places = dict.fromkeys((problem.where, "" if text else problem.text) for problem in some)
        found.append(FindingGroup(code, severity, hint, text, tuple(places)))
    return found


def findings_by_severity(problems: Sequence[Problem]) -> list[tuple[str, list[FindingGroup]]]:
    """Return findings in groups by severity, the worst first, with a heading for each severity that occurs."""
    found = {severity: [one for one in problems if one.severity is severity] for severity in _WORDS}
    return [(plural(len(some), _WORDS[severity]), finding_groups(some)) for severity, some in found.items() if some]
