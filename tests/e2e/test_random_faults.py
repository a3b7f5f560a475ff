"""Sessions on Slurm, over ssh and on an island, in which processes, hosts and jobs fail at random moments.

``DROPFLOW_FAULTS`` is how many sessions each place has, and ``DROPFLOW_SEED`` what their moments are drawn from. Each
session prints a row of a table.
"""

import json
import os
import random
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic

import psutil
import pytest

from dropflow.graph.codec import save
from tests.e2e.launched import Launched, running_slurm, running_ssh
from tests.processes import Running, words
from tests.recovery_graphs import files

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.timeout(7200)]

_SESSIONS = int(os.environ.get("DROPFLOW_FAULTS", "6"))
_SECONDS = 200.0
_FACTORS = (1.0, 1.0, -0.3, -0.3, -0.3)
"""Of moments: a negative one is so long after the first drop of the session has begun, others after the command."""
_KEPT = "results/files/sums.txt"


class Trial:
    """One session, and what can go wrong with it.

    Parameters
    ----------
    launched : Launched
        Its home, and its place.
    name : str
        The directory of its files there.
    """

    def __init__(self, launched: Launched, name: str, chance: random.Random) -> None:
        self.launched, self.chance = launched, chance
        self.directory = launched.home / name
        self.directory.mkdir()
        self.graph = self.directory / "g.dfg"
        save(files(self.directory / "marks", 0.3), self.graph)
        self.after: list[Callable[[], object]] = []
        self.timers: list[threading.Timer] = []
        self.process: subprocess.Popen[str] | None = None

    def found(self, *words: str) -> list[psutil.Process]:
        """Return the processes whose commands have one of these phrases, those with the lowest numbers first."""

        def shown(process: psutil.Process) -> str:
            own = " ".join(process.cmdline()).partition(" -- ")[0]  # what the head starts is a process of its own
            return "" if own.startswith("srun") and "srun" not in words else f"{own} "

        each = [one for one in self.launched.processes() if any(f"{word} " in shown(one) for word in words)]
        return sorted(each, key=lambda one: one.pid)

    def kill(self, *words: str) -> None:
        """Kill one of these processes."""
        found = self.found(*words)
        if found:
            self.chance.choice(found).kill()

    def kill_worker(self) -> None:
        """Kill a worker. A command of an application that is killed is an error of the application."""
        children = [child for node in self.found(*_NODE) for child in node.children(recursive=True)]
        found = [child for child in children if "dropflow.runners.worker" in words(child)]
        if found:
            self.chance.choice(found).kill()

    def stop(self, found: list[psutil.Process], *, seconds: float) -> None:
        """Stop processes, and let them continue after a time, or once the session is over."""
        for one in found:
            one.suspend()

        def go_on() -> None:
            for one in found:
                with suppress(psutil.NoSuchProcess):
                    one.resume()

        self.later(go_on, seconds)

    def stop_node(self, *, seconds: float) -> None:
        """Stop one of the node managers; see `stop`."""
        self.stop(self.found(*_NODE)[:1], seconds=seconds)

    def stop_server(self, *, seconds: float) -> None:
        """Stop the server of SSH and what it has started for connections; see `stop`."""
        every = psutil.process_iter(["name", "cmdline"])
        servers = [one for one in every if one.info["name"] == "sshd" and str(self.launched.home) in str(one.info)]
        serving = [child for server in servers for child in server.children(recursive=True) if child.name() == "sshd"]
        self.stop([*servers, *serving], seconds=seconds)

    def kill_ssh(self) -> None:
        """Kill the ssh to one of the hosts."""
        found = [child for one in self.found("launch head") for child in one.children(recursive=True)]
        found = [child for child in found if child.name() == "ssh"]
        if found:
            self.chance.choice(found).kill()

    def interrupt(self) -> None:
        """Send Ctrl-C to the command."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)

    def slurm(self, command: str, later: str = "true") -> None:
        """Run a command of Slurm on the job, and another one 15 s later."""
        job = self.launched.shell("squeue --noheader --format=%A --partition=p | head -n 1").strip()
        self.launched.shell(f"{command.replace('JOB', job)} || true")
        self.later(lambda: self.launched.shell(later), 15.0)

    def later(self, call: Callable[[], object], seconds: float) -> None:
        """Call something after a time, if that is not 0, and once the session is over."""
        self.after.append(call)
        if seconds:
            self.timers.append(threading.Timer(seconds, call))
            self.timers[-1].start()


def _nothing(_: Trial) -> None:
    """Let a session run without a fault."""


_NODE = ("launch member", "launch host", "dropflow node")
_RESUMED = "scontrol update nodename=n1 state=resume; scontrol update nodename=n2 state=resume || true"
_EVERYWHERE: dict[str, Callable[[Trial], None]] = {
    "kill -9 of a node": lambda trial: trial.kill(*_NODE),
    "kill -9 of a worker": Trial.kill_worker,
    "SIGSTOP of a node": lambda trial: trial.stop_node(seconds=0),
    "SIGSTOP of a node for 5 s": lambda trial: trial.stop_node(seconds=5),
}
_FAULTS: dict[str, dict[str, Callable[[Trial], None]]] = {
    "slurm": {
        **_EVERYWHERE,
        "kill -9 of the head": lambda trial: trial.kill("launch head"),
        "kill -9 of the island": lambda trial: trial.kill("dropflow island"),
        "kill -9 of srun": lambda trial: trial.kill("srun"),
        "second host DOWN": lambda trial: trial.slurm("scontrol update nodename=n2 state=down reason=x", _RESUMED),
        "first host DOWN": lambda trial: trial.slurm("scontrol update nodename=n1 state=down reason=x", _RESUMED),
        "scancel": lambda trial: trial.slurm("scancel JOB"),
        "requeue": lambda trial: trial.slurm("scontrol requeue JOB"),
        "preemption": lambda trial: trial.slurm(
            "sbatch --partition=urgent --nodes=2 --exclusive --output=/dev/null --wrap 'sleep 2'"
        ),
        "controller restarted": lambda trial: trial.slurm(
            f"kill $(cat {trial.launched.home}/controller.pid); sleep 3; slurmctld"
        ),
    },
    "ssh": {
        **_EVERYWHERE,
        "kill -9 of the head": lambda trial: trial.kill("launch head"),
        "kill -9 of the island": lambda trial: trial.kill("dropflow island"),
        "kill -9 of ssh": Trial.kill_ssh,
        "SIGSTOP of sshd": lambda trial: trial.stop_server(seconds=0),
        "SIGSTOP of sshd for 5 s": lambda trial: trial.stop_server(seconds=5),
        "Ctrl-C": Trial.interrupt,
    },
    "island": {**_EVERYWHERE, "kill -9 of the island": lambda trial: trial.kill("dropflow island")},
}


@contextmanager
def _place(name: str, tmp_path: Path) -> Iterator[Launched]:
    with ExitStack() as stack:
        if name == "slurm":
            yield stack.enter_context(running_slurm(tmp_path))
            return
        launched = Launched(tmp_path, name)
        if name == "ssh":
            stack.enter_context(running_ssh(launched))
            (tmp_path / "hosts.toml").write_text(
                f'directory = "{tmp_path}/nodes"\nworkers = 2\n[hosts.alpha]\n[hosts.beta]\n'
            )
        yield launched


def _start(trial: Trial, place: str, graph: Path) -> "subprocess.Popen[str]":
    """Start the command that runs a session and waits for it."""
    results = trial.directory / "results"
    more: tuple[object, ...] = ("-o", results, "--output", "json")
    if place == "slurm":
        return trial.launched.started(graph, *more, "--nodes", 2, "--time", 10, "--margin", "4s")
    if place == "ssh":
        return trial.launched.started(graph, *more, "--hosts", "hosts.toml")
    script = (
        f"dropflow submit {graph} --wait --output json >{results}.json && dropflow fetch -o {results} "
        f'$(sed \'s/.*"session":"\\([^"]*\\).*/\\1/\' {results}.json) >&2; status=$?; cat {results}.json; exit $status'
    )
    return trial.launched.started(command=("/bin/bash", "-c", script))


@pytest.mark.parametrize("place", list(_FAULTS))
def test_faults_at_random_moments(place: str, tmp_path: Path) -> None:
    """Results equal those without a fault, also of a job that went on after an end in words; nothing is left."""
    seed = int(os.environ.get("DROPFLOW_SEED", random.SystemRandom().randrange(10000)))
    chance = random.Random(seed)
    faults = list(_FAULTS[place].items())
    wrong = []
    with _place(place, tmp_path) as launched:
        launched.environment.pop("DROPFLOW_TOKEN")
        expected = ""
        for number in range(_SESSIONS + 1):
            what, inject = ("nothing", _nothing) if not number else faults[(seed + number) % len(faults)]
            trial = Trial(launched, f"{number}", chance)
            with ExitStack() as stack:
                if place == "island":
                    up = ("up", "--nodes", 2, "--workers", 2, "--port", 0, "--lost-after", 6, "--no-auth")
                    running = stack.enter_context(Running(tmp_path, *up))
                    launched.environment["DROPFLOW_URL"] = running.ready["island"]
                moment, began = chance.uniform(0.5, 9.0) * chance.choice(_FACTORS), monotonic()
                end, text = _run(trial, place, trial.graph, inject, moment)
                again = ""
                if not end and place != "island":
                    # There is none if the command was interrupted before it had made one.
                    directories = [path for path in launched.home.glob("dropflow-jobs/*") if path.is_dir()]
                    assert len(directories) < 2
                    again, more = _run(trial, place, (*directories, trial.graph)[0], _nothing, 0.0)
                    text += more
            for timer in trial.timers:
                timer.cancel()
            left: list[object] = [*psutil.wait_procs(launched.processes(), timeout=60)[1]]
            if place == "slurm" and not launched.becomes("squeue --noheader | wc -l", "0"):
                left.append(launched.shell("squeue; sinfo; scancel --user root --full --signal KILL"))
            result = (trial.directory / _KEPT).read_text() if (trial.directory / _KEPT).exists() else ""
            expected = expected or result
            launched.shell("rm -rf dropflow-jobs nodes")
            fine = result == expected or (place == "island" and not end and bool(text))
            row = f"{place:7} {number:3} {what:28} at {moment:4.1f} s: {end or 'ended':10} {again:10} "
            row += f"{monotonic() - began:5.1f} s{'' if fine and not left else f' WRONG {left}'} {text}"
            print(row, flush=True)  # noqa: T201
            if not fine or left or "Traceback" in text:
                wrong.append(row)
                for one in left:
                    if isinstance(one, psutil.Process):
                        one.kill()

    assert wrong == [], f"seed {seed}"


def _inject_at(moment: float, inject: Callable[[Trial], None], trial: Trial, over: threading.Event) -> None:
    """Wait, and make the fault unless the command has ended; a negative moment counts from the first drop on."""
    while moment < 0 and not (trial.directory / "marks").exists() and not over.wait(0.05):
        pass
    if not over.wait(abs(moment)):
        with suppress(psutil.NoSuchProcess):
            inject(trial)


def _run(trial: Trial, place: str, graph: Path, inject: Callable[[Trial], None], moment: float) -> tuple[str, str]:
    """Run a session with a fault; return its status if it has finished, and the words of its end if not."""
    with _start(trial, place, graph) as process:
        trial.process = process
        over = threading.Event()
        injector = threading.Thread(target=_inject_at, args=(moment, inject, trial, over))
        injector.start()
        try:
            answer, notes = process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return "", f"HANGS: {process.communicate()}"
        finally:
            over.set()
            injector.join()
            for each in trial.after:
                each()
    try:
        reply = json.loads(answer)
    except ValueError:
        reply = {}
    words = str(reply.get("error", "")) or notes.strip().splitlines()[-1:]
    return (
        (reply["status"], "")
        if process.returncode == 0
        else ("", f"{process.returncode} {reply.get('status')} {words}")
    )
