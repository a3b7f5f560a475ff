"""Signals that end a server process."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

SCRIPT = """
import os, sys, threading
from dropflow.cli.servers.server_process import StopSignal
parent = int(sys.argv[1]) if len(sys.argv) > 1 else None
with StopSignal(parent, before_exit=lambda: os.write(1, b"cleaned\\n")) as stop:
    print("ready", flush=True)
    while not stop.wait(60):
        pass
    print("stopped", flush=True)
    {then}
"""


def start(then: str = "pass", *arguments: str, pass_fds: Sequence[int] = ()) -> "subprocess.Popen[str]":
    """Start a process that waits for a signal and then executes `then`; it waits when this returns."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(then=then), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=pass_fds,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_requests_a_clean_end(number: signal.Signals) -> None:
    """The process ends with 0."""
    with start() as process:
        process.send_signal(number)
        assert process.communicate(timeout=120)[0] == "stopped\n"
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_the_process(number: signal.Signals) -> None:
    """A clean end that hangs is aborted, with status 128 plus the signal, after the given function was called."""
    with start("threading.Event().wait()") as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "stopped\n"
        process.send_signal(number)
        assert process.communicate(timeout=120)[0] == "cleaned\n"
    assert process.returncode == 128 + number


@pytest.mark.slow
def test_the_end_of_the_parent_requests_a_clean_end() -> None:
    """It closes the pipe."""
    reader, writer = os.pipe()
    with start("pass", str(reader), pass_fds=[reader]) as process:
        os.close(reader)
        os.close(writer)
        assert process.communicate(timeout=120)[0] == "stopped\n"
    assert process.returncode == 0


@pytest.mark.slow
def test_signal_handlers_are_restored() -> None:
    """After the with statement, SIGTERM has its default effect."""
    script = SCRIPT.format(then="pass") + "print('behind', flush=True)\nthreading.Event().wait()\n"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "stopped\n"
        assert process.stdout.readline() == "behind\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert process.returncode == -signal.SIGTERM
