"""The templates of the translator's pages, ``translator/web/templates``, and the names that they use."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

from dropflow.version import __version__
from dropflow.web.frame import PageLayout, PageTemplates, ServerLabel
from dropflow.web.known_servers import KnownServers
from translator.web.findings import findings_by_severity


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
