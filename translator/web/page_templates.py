"""The templates of the translator's pages, ``translator/web/templates``, and the names that they use."""

from collections.abc import Sequence
from pathlib import Path

from dropflow.formatting import plural
from dropflow.problems import Problem, Severity
from dropflow.rest.pages import PageLayout, PageTemplates
from dropflow.rest.places import Places
from dropflow.version import __version__

__all__ = ["translator_templates"]

_WORDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def translator_templates(places: Places) -> PageTemplates:
    """Return the templates; their pages link to the other servers of the cluster."""
    navigation = (("Translate", "/"), ("Translations", "/translations"))
    layout = PageLayout(navigation=navigation, style_sheets=("translator.css",), places=places)
    names = {"format_shape": _format_shape, "problems_by_severity": _problems_by_severity, "version": __version__}
    return PageTemplates(Path(__file__).with_name("templates"), layout=layout, names=names)


def _format_shape(lengths: tuple[int, ...]) -> str:
    """Return the shape of an index space: ``4 x 100``, or ``1``."""
    return " \N{MULTIPLICATION SIGN} ".join(f"{length:,}" for length in lengths) or "1"


def _problems_by_severity(problems: Sequence[Problem]) -> list[tuple[str, list[Problem]]]:
    """Return findings by severity, the worst first, with a heading for each severity that occurs."""
    found = {severity: [one for one in problems if one.severity is severity] for severity in _WORDS}
    return [(plural(len(some), _WORDS[severity]), some) for severity, some in found.items() if some]
