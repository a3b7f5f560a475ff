"""Observers of a session. They cost nothing when there are none, and cannot stop the session."""

from collections.abc import Callable, Mapping, Sequence

from dropflow.engine.api import Handle
from dropflow.engine.events import Action, Event

__all__ = ["Instrument", "Instruments"]


class Instrument:
    """Base of observers: override what you need. Called in the session's thread, so it must be quick."""

    def on_events(self, events: Sequence[Event]) -> None:
        """Called with each batch of events that the core has processed."""

    def on_actions(self, actions: Sequence[Action]) -> None:
        """Called with the actions that the core has returned for them."""

    def on_contents(self, contents: Mapping[int, Handle], seconds: Mapping[int, float]) -> None:
        """Called with contents that were committed, and how long the attempts took that wrote them here."""


class Instruments:
    """The instruments of one session. One that raises is removed, and `complain` is called with a note."""

    def __init__(self, instruments: Sequence[Instrument], complain: Callable[[str], None]) -> None:
        self._instruments = list(instruments)
        self._complain = complain

    def __bool__(self) -> bool:
        return bool(self._instruments)

    def events(self, events: Sequence[Event]) -> None:
        """Pass events to all."""
        self._show(lambda instrument: instrument.on_events(events))

    def actions(self, actions: Sequence[Action]) -> None:
        """Pass actions to all."""
        self._show(lambda instrument: instrument.on_actions(actions))

    def contents(self, contents: Mapping[int, Handle], seconds: Mapping[int, float]) -> None:
        """Pass contents to all."""
        self._show(lambda instrument: instrument.on_contents(contents, seconds))

    def _show(self, call: Callable[[Instrument], None]) -> None:
        for instrument in tuple(self._instruments):
            try:
                call(instrument)
            except Exception as error:  # noqa: BLE001 - an observer must not stop the session, whatever it raises
                self._instruments.remove(instrument)
                self._complain(f"instrument {type(instrument).__name__} was removed, it raised {error!r}")
