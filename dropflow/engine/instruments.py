"""Observers of a session: they cost nothing when absent, and cannot stop what they watch."""

from collections.abc import Callable, Sequence

from dropflow.engine.events import Action, Event

__all__ = ["Instrument", "Instruments"]


class Instrument:
    """Override what you want to see. Called by the session's thread, so be quick."""

    def on_events(self, events: Sequence[Event]) -> None:
        """Take note of a batch of events that the core has taken in."""

    def on_actions(self, actions: Sequence[Action]) -> None:
        """Take note of what the core wants done."""


class Instruments:
    """The instruments of one session. One that raises is taken out, and `complain` is told."""

    def __init__(self, instruments: Sequence[Instrument], complain: Callable[[str], None]) -> None:
        self._instruments = list(instruments)
        self._complain = complain

    def __bool__(self) -> bool:
        return bool(self._instruments)

    def events(self, events: Sequence[Event]) -> None:
        """Show events to all."""
        self._show(lambda instrument: instrument.on_events(events))

    def actions(self, actions: Sequence[Action]) -> None:
        """Show actions to all."""
        self._show(lambda instrument: instrument.on_actions(actions))

    def _show(self, call: Callable[[Instrument], None]) -> None:
        for instrument in tuple(self._instruments):
            try:
                call(instrument)
            except Exception as error:  # noqa: BLE001 - an observer must not stop the session, whatever it raises
                self._instruments.remove(instrument)
                self._complain(f"instrument {type(instrument).__name__} was removed, it raised {error!r}")
