"""Which sessions an island asks its children about."""

from math import inf

from managers.composite.children import MachineTime
from managers.composite.sessions import LongPoll, SessionWatch


def test_a_session_that_is_over_is_watched_no_more() -> None:
    """However many sessions were watched before, only those that are not over are looked at."""
    watch = SessionWatch(_time())
    for session in ("over", "running"):
        watch.enter(session)
    polls = watch.begin([("over", "http://n1"), ("running", "http://n1")])
    watch.end(polls[0], is_answered=True)

    watch.leave("over", is_over=True)
    watch.leave("running")

    assert watch.sessions() == ["running"]
    assert watch.deadline() == inf


def test_an_answer_about_a_session_that_is_over_sets_no_time() -> None:
    """The answer to a long poll that comes after the end of the session leaves nothing behind."""
    watch = SessionWatch(_time())
    watch.enter("s")
    (poll,) = watch.begin([("s", "http://n1")])
    watch.leave("s", is_over=True)

    watch.end(poll, is_answered=True)

    assert poll == LongPoll("s", "http://n1")
    assert (watch.sessions(), watch.deadline()) == ([], inf)


def test_a_session_is_watched_as_long_as_one_request_does() -> None:
    """Of two requests that watch a session, the first that ends does not end the watch."""
    watch = SessionWatch(_time())
    watch.enter("s")
    watch.enter("s")

    watch.leave("s", is_over=True)
    assert watch.sessions() == ["s"]
    watch.leave("s", is_over=True)
    assert watch.sessions() == []


def _time() -> MachineTime:
    time = MachineTime(offset=0.0, period=1.0)
    time.read(10.0)
    return time
