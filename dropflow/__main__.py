"""The process of the ``dropflow`` command, which ``python -m dropflow`` and the script ``dropflow`` start."""

import gc
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

_INTERRUPTED_STATUS = 130
"""Exit status after an interrupt: shells report signal n as 128 + n, and SIGINT is 2."""


def main() -> NoReturn:
    """Run the command with the arguments of the process.

    Before the command begins and after it has ended, SIGINT ends the process without a traceback. It does not raise
    KeyboardInterrupt then: an import may turn that into another error, and a callback may print and drop it. A process
    that was started with SIGINT ignored keeps ignoring it. SIGCHLD is never ignored: how a command ended would be lost.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    _set_handler(_end, needed=is_usual)
    from dropflow.cli.main import main as run  # noqa: PLC0415 - SIGINT is handled from here on

    def begin() -> None:
        gc.freeze()
        gc.enable()
        _set_handler(signal.default_int_handler, needed=is_usual)

    try:
        run(begin=begin)
    finally:
        _set_handler(_end, needed=is_usual)


def _set_handler(handler: Callable[[int, FrameType | None], object], *, needed: bool) -> None:
    if needed:
        signal.signal(signal.SIGINT, handler)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED_STATUS)


if __name__ == "__main__":
    main()
