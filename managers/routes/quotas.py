"""How many sessions and drops users may have at a time: the file with the limits, and what counts."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from dropflow.api.manager import Manager
from dropflow.errors import BadFileError, QuotaError, StorageError
from dropflow.formatting import plural


class UserLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many sessions of a user may run at a time, and how many drops they may have together; None for any number."""

    sessions: Annotated[int, Meta(ge=0)] | None = None
    drops: Annotated[int, Meta(ge=0)] | None = None


class UserLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file with the limits of users: a `default`, and by name what differs from it."""

    default: UserLimit = UserLimit()
    users: dict[str, UserLimit] = {}

    def of(self, user: str) -> UserLimit:
        """Return the limits of a user."""
        own = self.users.get(user, UserLimit())
        return UserLimit(
            sessions=self.default.sessions if own.sessions is None else own.sessions,
            drops=self.default.drops if own.drops is None else own.drops,
        )


def read_user_limits(path: Path) -> UserLimits:
    """Return the limits in a TOML file; none if there is no file.

    Raises
    ------
    StorageError
        The file cannot be read.
    BadFileError
        It has another form.
    """
    try:
        return msgspec.toml.decode(path.read_bytes(), type=UserLimits)
    except FileNotFoundError:
        return UserLimits()
    except OSError as error:
        raise StorageError(f"the limits of users cannot be read: {error.strerror}", where=str(path)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "tables [default] and [users.NAME] with whole numbers 'sessions' and 'drops'"
        raise BadFileError(f"the limits of users cannot be used: {error}", where=str(path), hint=hint) from error


class _Starting(msgspec.Struct, frozen=True, eq=False):
    """A session that is being deployed; each is another one, also with the same values."""

    user: str
    drops: int


class Quotas:
    """Admits sessions of users within their limits. The file is read each time, so that changes count at once."""

    def __init__(self, manager: Manager, file: Path | None) -> None:
        self._manager = manager
        self._file = file
        # Two requests of a user at the same moment must not both get the last place: each counts those that were added
        # before it, which needs no lock, because adding to a list and copying one are atomic.
        self._starting: list[_Starting] = []

    @contextmanager
    def admitted(self, user: str, drops: int) -> Iterator[None]:
        """Hold a place for a session of `user` with so many drops until the manager lists it.

        Raises
        ------
        QuotaError
            It would be beyond a limit.
        StorageError, BadFileError
            See `read_user_limits`.
        """
        limit = UserLimit() if self._file is None or not user else read_user_limits(self._file).of(user)
        if limit == UserLimit():
            yield
            return
        own = _Starting(user, drops)
        self._starting.append(own)
        try:
            # In this order: one that is listed meanwhile counts twice, and none is missed.
            starting = self._starting.copy()
            counted = [one.drops for one in starting[: starting.index(own)] if one.user == user]
            counted += [info.drops for info in self._manager.sessions() if info.user == user and not info.is_over]
            self._check(user, limit, counted, drops)
            yield
        finally:
            self._starting.remove(own)

    def _check(self, user: str, limit: UserLimit, running: Sequence[int], drops: int) -> None:
        where, hint = self._manager.info().name, "wait for the end of a session, or cancel one: see 'dropflow sessions'"
        if limit.sessions is not None and len(running) >= limit.sessions:
            text = f"user {user} has {plural(len(running), 'running session')}, and may have {limit.sessions}"
            raise QuotaError(text, where=where, hint=hint)
        if limit.drops is not None and sum(running) + drops > limit.drops:
            raise QuotaError(
                f"user {user} has {sum(running):,} drops in running sessions and may have {limit.drops:,}, "
                f"and this session has {drops:,}",
                where=where,
                hint=hint,
            )
