"""Rendering: the templates of ``translator/web/templates``, with the words that all of them use.

Bottle's SimpleTemplate escapes everything that ``{{...}}`` shows; nothing here shows a name unescaped.
"""

import threading
from pathlib import Path
from typing import Any

import bottle

from dropflow import __version__
from translator.web.wording import amount, counted, grouped, shape, shown, size, span, stamp

__all__ = ["Pages"]

_FOLDER = Path(__file__).with_name("templates")
_SHARED: dict[str, object] = {
    "amount": amount,
    "counted": counted,
    "grouped": grouped,
    "shape": shape,
    "shown": shown,
    "size": size,
    "span": span,
    "stamp": stamp,
    "version": __version__,
}


class Pages:
    """The templates, each compiled when it is first needed. May be used from any thread."""

    def __init__(self) -> None:
        self._compiled: dict[str, Any] = {}
        self._rendering = threading.Lock()

    def render(self, name: str, *, twin: str = "", refresh: int = 0, **given: object) -> str:
        """The page ``templates/NAME.tpl``.

        Parameters
        ----------
        name : str
            Of the template, without its suffix.
        twin : str
            Address of the same page as JSON; empty when there is none.
        refresh : int
            Seconds after which the browser shall ask again; 0 for never.
        **given
            What the template shows.
        """
        # SimpleTemplate fills its caches without a lock of its own; rendering holds the interpreter's anyway.
        with self._rendering:
            if name not in self._compiled:
                self._compiled[name] = bottle.SimpleTemplate(name=f"{name}.tpl", lookup=[str(_FOLDER)])
            page: str = self._compiled[name].render(**_SHARED, twin=twin, refresh=refresh, **given)
        return page
