"""The templates of a manager's pages, ``managers/web/templates``, and the names that they use."""

from pathlib import Path

from dropflow.drop_counts import failed_words
from dropflow.formatting import DASH, format_quantity
from dropflow.rest.hosts import cores_of_hosts
from dropflow.rest.manager_records import ManagerInfo
from dropflow.rest.pages.page_layout import PageLayout, PageTemplates, shown_name
from dropflow.rest.pages.places import Places
from dropflow.session_views.bars import GROUPS, grouped, segments, session_style, state_style, state_word
from dropflow.session_views.cause_groups import causes
from dropflow.session_views.traffic_grid import traffic_grid
from managers.web import addresses
from managers.web.code_text import code_lines

__all__ = ["drop_label", "manager_templates"]


def _shown_manager(manager: ManagerInfo) -> str:
    """Return role and name of a manager, once if they are the same word."""
    name = shown_name(manager.name, 60)
    return name if name == manager.role else f"{manager.role} {name}"


def drop_label(name: str, oid: str) -> str:
    """Return the name of a drop for people: that of its logical node, and its indices if there are several.

    Commands take it in place of the id (`dropflow.graph.text_ids.drops_named`).
    """
    indices = oid.rpartition("_")[2].split("-")
    if not all(index.isdecimal() for index in indices):
        return name or oid
    return f"{name} {'-'.join(indices[1:])}" if len(indices) > 1 else name or oid


def _ratio_text(ratio: float | None) -> str:
    """Return a ratio of two numbers: ``× 1.25``; a dash if there is none."""
    return DASH if ratio is None else f"× {format_quantity(round(ratio, 2 if ratio < _LARGE_RATIO else 0))}"


_LARGE_RATIO = 100
_NAMES: dict[str, object] = {
    "api_url": addresses.api_url,
    "causes": causes,
    "code_lines": code_lines,
    "causes_url": addresses.causes_url,
    "compare_url": addresses.compare_url,
    "cores_of_hosts": cores_of_hosts,
    "drop_label": drop_label,
    "drop_url": addresses.drop_url,
    "failed_words": failed_words,
    "failure_url": addresses.failure_url,
    "grouped": grouped,
    "groups": GROUPS,
    "origin_url": addresses.origin_url,
    "ratio_text": _ratio_text,
    "quoted": addresses.quoted,
    "retry_url": addresses.retry_url,
    "again_url": addresses.again_url,
    "segments": segments,
    "session_api": addresses.session_api,
    "session_style": session_style,
    "session_url": addresses.session_url,
    "shown_manager": _shown_manager,
    "state_style": state_style,
    "state_word": state_word,
    "timeline_url": addresses.timeline_url,
    "traffic_grid": traffic_grid,
}


def manager_templates(places: Places | None = None) -> PageTemplates:
    """Return the templates; each page shows the `manager`, a `ManagerInfo`, and links to other servers (`places`)."""
    navigation = (("Overview", "/"), ("Nodes", "/nodes"), ("Sessions", "/sessions"), ("Submit", "/submit"))
    layout = PageLayout(navigation=navigation, style_sheets=("timeline.css", "traffic.css"), places=places or Places())
    return PageTemplates(Path(__file__).with_name("templates"), layout=layout, names=_NAMES)
