"""The report of a run or a session, for commands that read either."""

from pathlib import Path
from typing import TYPE_CHECKING

from dropflow.cli.options import ConnectionOptions

if TYPE_CHECKING:
    from dropflow.session_views.report import SessionReport

__all__ = ["report_of_run"]


def report_of_run(
    manager: ConnectionOptions, run: str, *, other_url: str | None = None, has_states: bool = False
) -> "SessionReport":
    """Return the report, with results, of the directory of a run, or of a session.

    Parameters
    ----------
    manager : ConnectionOptions
        Names the manager.
    run : str
        A directory if it is written as a path, or if no address is given and there is a run of that name.
    other_url : str, optional
        The manager of the session, if it is another one.
    has_states : bool
        Whether the states of the drops of a session are read, too.

    Raises
    ------
    NotFoundError
        There is no such run or session.
    DropflowError
        It cannot be read, or the manager cannot be reached.
    """
    # Names of sessions have no slash. With an address, a name without one is a session.
    has_url = bool(other_url or manager.url)
    if "/" in run or run in (".", "..") or (not has_url and Path(run, "graph.dfg").exists()):
        from dropflow.run_report import run_report

        return run_report(Path(run))
    from dropflow.cli.connection import connect_to, manager_url
    from dropflow.session_views.session_report import session_report

    url = manager_url(manager if other_url is None else ConnectionOptions(url=other_url))
    if other_url is not None and manager.url is None:  # the token is for the manager of the options
        manager = ConnectionOptions(key=manager.key)
    with connect_to(url, manager) as client:
        return session_report(client, run, has_results=True, has_states=has_states)
