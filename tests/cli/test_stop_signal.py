"""How a process that stays is told to end."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

SCRIPT = """
import os, sys, threading
from dropflow.cli.stop_signal import StopSignal
parent = int(sys.argv[1]) if len(sys.argv) > 1 else None
with StopSignal(parent, before_exit=lambda: os.write(1, b"at once\\n")) as stopping:
    print("ready", flush=True)
    while not stopping.wait(60):
        pass
    print("asked", flush=True)
    {then}
"""


def start(then: str = "pass", *arguments: str, pass_fds: Sequence[int] = ()) -> "subprocess.Popen[str]":
    """A process that waits for its end, and then does something; it is ready when this returns."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(then=then), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=pass_fds,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks(number: signal.Signals) -> None:
    """The process goes on to its clean end."""
    with start() as process:
        process.send_signal(number)
        assert process.communicate(timeout=30)[0] == "asked\n"
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_at_once(number: signal.Signals) -> None:
    """An end that hangs is cut short, with 128 plus the signal's number, and what must be done is done."""
    with start("threading.Event().wait()") as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        process.send_signal(number)
        assert process.communicate(timeout=30)[0] == "at once\n"
    assert process.returncode == 128 + number


def test_the_end_of_the_parent_asks() -> None:
    """When the pipe is closed, the process goes on to its clean end."""
    reader, writer = os.pipe()
    with start("pass", str(reader), pass_fds=[reader]) as process:
        os.close(reader)
        os.close(writer)
        assert process.communicate(timeout=30)[0] == "asked\n"
    assert process.returncode == 0


def test_signals_are_as_before_behind_it() -> None:
    """Behind the with statement SIGTERM does what it always did."""
    script = SCRIPT.format(then="pass") + "print('behind', flush=True)\nthreading.Event().wait()\n"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "asked\n"
        assert process.stdout.readline() == "behind\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM
