"""The attempts that a runner has: their number, and those that were given with one before them."""

from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.events import Begin, Run
from dropflow.execution.given_attempts import GivenAttempts
from dropflow.execution.tasks import AttemptResult
from dropflow.failure import Failure
from dropflow.graph.physical import follower_column
from dropflow.testing.drawing import draw, row

GRAPH = draw("A -> x -> B -> y -> C -> z")
A, B, C = (row(GRAPH, name) for name in "ABC")
BOOM = Failure(code="DF105", kind="ValueError", text="boom")


def begun() -> GivenAttempts:
    """Return the attempts of a session of one chain that has begun, after its first attempt was given."""
    core = Core(GRAPH)
    core.handle([Begin()])
    given = GivenAttempts(core, follower_column(GRAPH, [1] * len(GRAPH.templates)), 4)
    assert given.give(Run(A, 1)) == [Run(B, 1), Run(C, 1)]
    return given


def ended(drop: int, failure: Failure | None = None) -> AttemptResult:
    """Return the result of the first attempt of a drop."""
    return AttemptResult(drop, 1, failure=failure)


def test_attempts_that_follow_one_are_decided_later() -> None:
    """The runner has them, and they do not fill its window until the core decides that they run."""
    given = begun()
    assert (given.count, given.decided) == (3, 1)

    assert given.begin([Run(B, 1)]) == ([], [])
    assert (given.count, given.decided) == (3, 2)
    given.end()
    given.take_back(1)
    assert (given.count, given.decided) == (1, 0)


def test_a_result_ahead_of_the_core_waits_for_it() -> None:
    """It is returned when the core decides that the attempt runs, and need not run again."""
    given, first = begun(), ended(B)

    assert given.awaits(first)
    assert given.keep(first, {A})
    assert given.begin([Run(B, 1)]) == ([], [first])


def test_a_result_after_a_failure_does_not_count() -> None:
    """The attempt is submitted anew if the core runs it after all."""
    given = begun()

    assert not given.keep(ended(B), set())
    assert given.begin([Run(B, 1)]) == ([Run(B, 1)], [])


def test_a_failure_ends_the_chain() -> None:
    """What follows a failed attempt does not count, although its own attempt succeeded."""
    given, accepted = begun(), {A}

    assert given.keep(ended(B, BOOM), accepted)
    assert not given.keep(ended(C), accepted)


def test_attempts_that_were_not_begun_are_taken_once() -> None:
    """Each is submitted again once."""
    given = begun()
    given.submit_again(Run(A, 1))

    assert given.take_again() == [Run(A, 1)]
    assert not given.take_again()
