"""The templates of the translator's pages, ``translator/web/templates``, and the names that they use."""

from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dropflow.rest.pages.page_layout import PageLayout, PageTemplates
from dropflow.rest.pages.places import Places
from dropflow.version import __version__
from translator.template import TemplateParameter
from translator.web.findings import findings_by_severity

__all__ = ["translator_templates"]


def translator_templates(places: Places, name: str) -> PageTemplates:
    """Return the templates; their pages link to other servers, and to the log of this one, `name`."""
    log = f"/nodes/{quote(name, safe='')}/log"
    navigation = (("Translate", "/"), ("Translations", "/translations"), ("Log", log))
    layout = PageLayout(navigation=navigation, style_sheets=("translator.css",), places=places)
    names: dict[str, Any] = {"format_shape": _format_shape, "findings_by_severity": findings_by_severity}
    names |= {"quoted": partial(quote, safe="")}
    names |= {"is_numeric_input": _is_numeric_input, "range_text": _range_text, "version": __version__}
    return PageTemplates(Path(__file__).with_name("templates"), layout=layout, names=names)


def _format_shape(lengths: tuple[int, ...]) -> str:
    """Return the shape of an index space: ``4 x 100``, or ``1``."""
    return " \N{MULTIPLICATION SIGN} ".join(f"{length:,}" for length in lengths) or "1"


def _is_numeric_input(parameter: TemplateParameter, value: str) -> bool:
    """Whether a browser can ask for the parameter as a number: not if its value is an expression."""
    if parameter.type not in ("Integer", "Float"):
        return False
    try:
        return not value or isfinite(float(value))
    except ValueError:
        return False


def _range_text(parameter: TemplateParameter) -> str:
    """Return the range of a number: ``, 1 to 64``."""
    low, high = parameter.minimum, parameter.maximum
    if low is not None and high is not None:
        return f", {low:g} to {high:g}"
    return f", from {low:g}" if low is not None else f", up to {high:g}" if high is not None else ""
