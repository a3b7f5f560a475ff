"""Owners of sessions, and limits on the sessions and drops of users at a time, from a file."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from dropflow.api.manager import Manager
from dropflow.api.session_records import SessionDetail, SessionInfo, UserUse
from dropflow.errors import BadFileError, NotFoundError, NotOwnerError, QuotaError, StorageError
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
    session: str
    drops: int


class Owners:
    """Knows whose the sessions of a manager are, and admits those of users within their limits.

    Parameters
    ----------
    manager : Manager
        Which lists the sessions, once they are deployed.
    file : Path, optional
        The limits of users. It is read each time, so that changes count at once.
    """

    def __init__(self, manager: Manager, file: Path | None = None) -> None:
        self._manager = manager
        self._file = file
        # Two requests of a user at the same moment must not both get the last place: each counts those that were added
        # before it, which needs no lock, because adding to a list and copying one are atomic.
        self._starting: list[_Starting] = []

    def owned(self, session: str, user: str) -> SessionDetail | None:
        """Return a session of `user`; None if the manager does not list it yet, because it is being deployed.

        Raises
        ------
        NotFoundError
            There is no such session.
        NotOwnerError
            It is of another user, or of the administrator.
        """
        # In this order: one that is listed meanwhile is not missed.
        starting = {start.session: start.user for start in self._starting.copy()}
        try:
            detail = self._manager.session(session)
        except NotFoundError:
            if session not in starting:
                raise
            detail = None
        owner = starting[session] if detail is None else detail.user
        if owner != user:
            whose = f"of user {owner}" if owner else "of the administrator"
            raise NotOwnerError(
                f"session {session!r} is {whose}, and user {user} cannot change it",
                where=self._manager.info().name,
                hint="ask them, or use the cluster key or the token of the manager",
            )
        return detail

    def finding(self) -> str:
        """Return why the limits of users cannot be used, so that no user can submit; empty if they can."""
        try:
            if self._file is not None:
                read_user_limits(self._file)
        except (StorageError, BadFileError) as error:
            return str(error)
        return ""

    @contextmanager
    def starting(self, user: str, session: str, drops: int) -> Iterator[_Starting]:
        """Know whose a session is, and count it, until the manager lists it."""
        own = _Starting(user, session, drops)
        self._starting.append(own)
        try:
            yield own
        finally:
            self._starting.remove(own)

    @contextmanager
    def admitted(self, user: str, session: str, drops: int) -> Iterator[None]:
        """As `starting`, if the session is within the limits of the user.

        Raises
        ------
        QuotaError
            It would be beyond a limit.
        StorageError, BadFileError
            See `read_user_limits`.
        """
        limit = UserLimit() if self._file is None or not user else read_user_limits(self._file).of(user)
        with self.starting(user, session, drops) as own:
            if limit != UserLimit():
                # In this order: one that is listed meanwhile counts twice, and none is missed.
                starting = self._starting.copy()
                counted = [start.drops for start in starting[: starting.index(own)] if start.user == user]
                counted += _running(self._manager.sessions())[user]
                self._check(user, limit, counted, drops)
            yield

    def use(self, sessions: Iterable[SessionInfo], asking: str = "") -> tuple[UserUse, ...]:
        """Return what users have of these sessions, and may have.

        They are those with a session that is not over, those with limits of their own, and the user who asks.

        While the file of limits cannot be used, users have no limits here, and submit nothing (`admitted`).
        """
        limits = UserLimits()
        if self._file is not None:
            with suppress(StorageError, BadFileError):
                limits = read_user_limits(self._file)
        running = _running(sessions)
        return tuple(
            UserUse(
                user=user,
                sessions=len(running[user]),
                drops=sum(running[user]),
                most_sessions=limits.of(user).sessions,
                most_drops=limits.of(user).drops,
            )
            for user in sorted({*running, *limits.users, *filter(None, [asking])})
        )

    def _check(self, user: str, limit: UserLimit, running: Sequence[int], drops: int) -> None:
        where, hint = self._manager.info().name, "wait for the end of a session, or cancel one: see 'dropflow sessions'"
        if limit.sessions is not None and len(running) >= limit.sessions:
            text = f"user {user} has {plural(len(running), 'running session')}, and may have {limit.sessions}"
            raise QuotaError(text, where=where, hint=hint)
        if limit.drops is not None and sum(running) + drops > limit.drops:
            if drops > limit.drops:
                hint = (
                    "ask the administrator for a higher limit, or divide the graph: no session of this size is admitted"
                )
            raise QuotaError(
                f"user {user} has {sum(running):,} drops in running sessions and may have {limit.drops:,}, "
                f"and this session has {drops:,}",
                where=where,
                hint=hint,
            )


def _running(sessions: Iterable[SessionInfo]) -> defaultdict[str, list[int]]:
    """Return the drops of each session that is not over, by its user."""
    drops: defaultdict[str, list[int]] = defaultdict(list)
    for info in sessions:
        if info.user and not info.is_over:
            drops[info.user].append(info.drops)
    return drops
