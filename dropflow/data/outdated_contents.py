"""Removes the contents that drops had before they run again, so that none of them is taken for a new one."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from dropflow.data.file_writer import remove_part
from dropflow.data.workspace import Workspace
from dropflow.engine.api import Handle
from dropflow.engine.events import Event
from dropflow.engine.instruments import Instrument

__all__ = ["RemoveOutdated"]


class RemoveOutdated(Instrument):
    """Removes outdated contents as soon as the journal of the session that continues has replaced the earlier one.

    Before that, a process that ends must leave the session as it was. Files elsewhere than in the session directory
    stay until they are replaced, as in a session that begins.

    Parameters
    ----------
    workspace : Workspace
        Of the session.
    outdated : iterable of Handle
        The contents.
    kept : iterable of Handle
        Contents that stay. What is at their place, in one of them, or around one, stays, too.
    """

    def __init__(self, workspace: Workspace, outdated: Iterable[Handle], kept: Iterable[Handle]) -> None:
        inside = f"{workspace.directory}/"
        places = {handle.location for handle in outdated if handle.location.startswith(inside)}
        stay = {handle.location for handle in kept if handle.location}
        around = {str(folder) for place in stay for folder in Path(place).parents}
        self._places = {
            place for place in places - stay - around if not any(str(folder) in stay for folder in Path(place).parents)
        }
        self._new_journal = Path(workspace.directory, "journal.dfj.new")

    def on_events(self, events: Sequence[Event]) -> None:
        """Remove them with the first events, which are in the journal now."""
        del events
        places, self._places = self._places, set()
        if not places or self._new_journal.exists():
            return
        for place in places:
            remove_part(place)
