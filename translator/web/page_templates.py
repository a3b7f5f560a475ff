"""The templates of the translator's pages, ``translator/web/templates``, and the names that they use."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from dropflow.failure import Problem, Severity
from dropflow.formatting import plural
from dropflow.version import __version__
from dropflow.web.frame import PageLayout, PageTemplates, ServerLabel
from dropflow.web.known_servers import KnownServers

_FIRST_PLACES = 8
"""Places of a finding that a page shows; the others are folded."""
_WORDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def translator_templates(servers: KnownServers, name: str) -> PageTemplates:
    """Return the templates; their pages link to other servers, and to the log of this one, `name`."""
    log = f"/nodes/{quote(name, safe='')}/log"
    navigation = (("Translate", "/"), ("Translations", "/translations"), ("Log", log))
    label = ServerLabel(aside="translator", footer=f"dropflow {__version__}")
    layout = PageLayout(
        server=lambda _: label, navigation=navigation, style_sheets=("translator.css",), servers=servers
    )
    names: dict[str, Any] = {"format_shape": _format_shape, "findings_by_severity": findings_by_severity}
    return PageTemplates(Path(__file__).with_name("templates"), layout=layout, names=names)


def _format_shape(lengths: tuple[int, ...]) -> str:
    """Return the shape of an index space: ``4 x 100``, or ``1``."""
    return " \N{MULTIPLICATION SIGN} ".join(f"{length:,}" for length in lengths) or "1"


# Findings for a page: those of one kind together, so that one mistake in many nodes is read once.


class FindingGroup(msgspec.Struct, frozen=True):
    """Findings with one code, severity and hint.

    Attributes
    ----------
    code, hint : str
        Code and hint that all have in common.
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

    @property
    def first_and_more(self) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
        """The places that a page shows, and those that it folds."""
        return self.places[:_FIRST_PLACES], self.places[_FIRST_PLACES:]


def finding_groups(problems: Sequence[Problem]) -> list[FindingGroup]:
    """Return findings by code, severity and hint, in the order of their first ones."""
    alike: dict[tuple[str, Severity, str], list[Problem]] = {}
    for problem in problems:
        alike.setdefault((problem.code, problem.severity, problem.hint), []).append(problem)
    groups = []
    for (code, severity, hint), group in alike.items():
        texts = {problem.text for problem in group}
        text = group[0].text if len(texts) == 1 else ""
        places = dict.fromkeys((problem.where, "" if text else problem.text) for problem in group)
        groups.append(FindingGroup(code, severity, hint, text, tuple(places)))
    return groups


def findings_by_severity(problems: Sequence[Problem]) -> list[tuple[str, list[FindingGroup]]]:
    """Return findings in groups by severity, the worst first, with a heading for each severity that occurs."""
    by_severity = {severity: [problem for problem in problems if problem.severity is severity] for severity in _WORDS}
    return [
        (plural(len(group), _WORDS[severity]), finding_groups(group))
        for severity, group in by_severity.items()
        if group
    ]
