"""Kills ``dropflow run`` and ``dropflow resume`` at random moments."""

import random
import shutil
from pathlib import Path

from tests.e2e.test_resume import Run, check_repeated, undisturbed
from tests.e2e.torture.figures import Figures
from tests.recovery_graphs import GRAPHS

__all__ = ["torture_run"]


def torture_run(seed: int, home: Path, figures: Figures) -> None:
    """Kill one run up to six times, and continue it to its end."""
    chance = random.Random(seed)  # noqa: S311 - to be the same each time
    kind = chance.choice(sorted(GRAPHS))
    expected = undisturbed(kind, home)
    directory = home / f"run-{seed}"
    run = Run(kind, directory)
    with_workers, before, wanted = True, run.begun(), run.to_run()
    for _ in range(chance.choice((1, 2, 3, 4, 6))):
        before, wanted = run.begun(), run.to_run()
        with_workers = chance.random() < 0.7
        seconds = chance.uniform(0.1, 0.8 + 1.2 * expected.seconds)
        is_killed = run.kill("run" if wanted is None else "resume", seconds, with_workers=with_workers)
        figures.kills["run"] += is_killed
        if with_workers:
            check_repeated(run, before, wanted)
        if chance.random() < 0.2 and run.to_run():
            run.lose_content(chance)
    before, wanted = run.begun(), run.to_run()
    end = run.finish("run" if wanted is None else "resume")
    if with_workers:
        check_repeated(run, before, wanted)
    assert (end.status, end.states, end.causes) == (expected.status, expected.states, expected.causes)
    paths = end.files.keys() | expected.files.keys()
    wrong = {path for path in paths if end.files.get(path) != expected.files.get(path)}
    assert not wrong, f"{kind} in {directory}: other files, or others in them: {wrong}"
    left = [name for name in ("tmp", "lock") if (run.directory / name).exists()]
    assert not left, f"left: {left}"
    figures.sessions += 1
    figures.repeated += sum(max(0, count - 1) for count in run.begun().values())
    shutil.rmtree(directory)
