"""The progress of a computation on managers: live in a notebook, as bars on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dropflow.builder.results import SubmittedGraph
from dropflow.cli.progress import session_progress
from dropflow.cli.watch import statistics_of
from dropflow.notebook import notebook_display
from dropflow.rest.session_records import SessionDetail

__all__ = ["shown"]


@contextmanager
def shown(session: SubmittedGraph, *, is_shown: bool) -> Iterator[Callable[[SessionDetail], None]]:
    """Yield a function that shows a session: in a notebook, on a terminal, or nowhere else."""
    if is_shown and _is_notebook():
        display = notebook_display()
        views: list[Any] = []

        def show_view(detail: SessionDetail) -> None:
            if views:
                views[0].update(session.view(detail))
            else:
                views.append(display(session.view(detail), display_id=True))

        yield show_view
    elif is_shown and sys.stderr.isatty():
        with session_progress(quiet=False) as show:
            yield lambda detail: show(statistics_of(detail))
    else:
        yield lambda _: None


def _is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook. Imports nothing."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")
