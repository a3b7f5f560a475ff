"""Processes of the translator that are forked from one that has imported their modules."""

import importlib
import multiprocessing
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(["translator.web.translation_process", "translator.web.export"])


class ForkedProcess:
    """What `subprocess.Popen` is for a module of the translator, without the quarter of a second of its imports."""

    def __init__(self, module: str, folder: Path) -> None:
        (folder / "log").touch()  # raises if the folder is deleted
        given, stdin = _FORKING.Pipe(duplex=False)
        stdout, answer = _FORKING.Pipe(duplex=False)
        self._process = _FORKING.Process(target=_run, args=(module, folder, given, answer), daemon=True)
        with given, stdin, stdout, answer:
            self._process.start()
            self.stdin = os.fdopen(os.dup(stdin.fileno()), "wb")
            self.stdout = os.fdopen(os.dup(stdout.fileno()), "rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        try:
            self.stdin.close()
        finally:
            self.wait()

    @property
    def returncode(self) -> int | None:
        """Return its exit status, or minus the signal that has ended it."""
        return self._process.exitcode

    def wait(self) -> int | None:
        """Wait for its end, and return its exit status."""
        self._process.join()
        return self.returncode

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()


def _run(module: str, folder: Path, given: Connection, answer: Connection) -> None:
    log = os.open(folder / "log", os.O_WRONLY)
    for descriptor, wanted in enumerate((given.fileno(), answer.fileno(), log)):
        os.dup2(wanted, descriptor)
    given.close()
    answer.close()
    os.chdir(folder)  # noqa: TID251 - this process has the directory that the translator gives it
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - until the process ends
    sys.exit(importlib.import_module(module).main(folder))
