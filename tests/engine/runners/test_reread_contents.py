"""Contents that many attempts read: sent to a worker once, and there for each of them."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dropflow.engine.api import Handle, Input, Task
from dropflow.runners.worker_messages import Buffer, ReceivedContents, SentContents, Tasks, frame
from dropflow.states import DropState

_MOST = 100


def _handle(letter: str, size: int) -> Handle:
    return Handle(body=letter.encode() * size, size=size)


_HANDLES = [_handle(letter, size) for letter in "ab" for size in (0, 1, 30, 60, 120)]
_INPUTS = st.builds(
    lambda drop, handle, is_reread: Input(drop, f"g_{drop}", 0, 0, DropState.COMPLETED, handle, is_reread),
    st.integers(0, 4),
    st.sampled_from([*_HANDLES, None, Handle(kind="shm", location="/dev/shm/x", size=50)]),  # noqa: S108 - not opened
    st.booleans(),
)
_TASKS = st.builds(lambda inputs: Task(0, 1, 0, "g_0", (0,), tuple(inputs)), st.lists(_INPUTS, max_size=4))
_STEPS = st.lists(st.tuples(st.integers(0, 1), st.lists(_TASKS, max_size=3)), max_size=12)


def _task(*handles: Handle, is_reread: bool = True) -> Task:
    inputs = [Input(row, f"g_{row}", 0, 0, DropState.COMPLETED, one, is_reread) for row, one in enumerate(handles)]
    return Task(9, 1, 0, "g_9", (0,), tuple(inputs))


def _received(message: Tasks) -> Tasks:
    buffer = Buffer()
    buffer.add(frame(message))
    (body,) = buffer.frames()
    return msgspec.msgpack.decode(body, type=Tasks)


@given(steps=_STEPS)
def test_a_worker_gets_the_attempts_that_were_given(steps: list[tuple[int, list[Task]]]) -> None:
    """Whatever is sent, closed or removed to make room, the worker has each attempt with all its contents."""
    sent, received = SentContents(_MOST), ReceivedContents(_MOST)
    for runner, tasks in steps:
        if not tasks:
            sent.forget(runner)
            received.forget(runner)
        message = _received(Tasks(runner, 0, sent.without_known(runner, tasks)))
        assert list(received.with_known(runner, message.tasks)) == tasks


def test_a_content_is_sent_once() -> None:
    """The second attempt that reads a content is sent without its bytes, and one of another runner with them."""
    sent, content = SentContents(), _handle("a", 5000)
    first, second = sent.without_known(1, [_task(content), _task(content)])
    assert first == _task(content)
    assert len(frame(Tasks(1, 0, (second,)))) < 200
    assert sent.without_known(2, [_task(content)]) == (_task(content),)


def test_a_content_that_few_read_is_not_kept() -> None:
    """What is not marked is sent with each attempt, and holds no memory in the pool or the worker."""
    sent, task = SentContents(), _task(_handle("a", 5000), is_reread=False)
    assert sent.without_known(1, [task, task]) == (task, task)


def test_a_new_content_of_a_drop_is_sent() -> None:
    """A drop that ran again has another content, which the worker gets."""
    sent, received = SentContents(), ReceivedContents()
    for letter in "aba":
        task = _task(_handle(letter, 5000))
        assert list(received.with_known(1, sent.without_known(1, [task]))) == [task]
