"""Graphs whose applications note in a file that they have begun, for tests that kill their processes."""

from collections.abc import Callable
from pathlib import Path

from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument

_FILE = "dlg.data.drops.file.FileDROP"


class _Drawing:
    """Commands and data; each command first adds its name to the file of marks, then waits a moment.

    Parameters
    ----------
    marks : Path
        The file.
    seconds : float
        How long each command takes at least.
    """

    def __init__(self, name: str, marks: Path, seconds: float) -> None:
        self.builder = GraphBuilder(name)
        self._marks, self._seconds = marks, seconds

    def command(self, name: str, command: str, *, reads: str = "", writes: str = "", **fields: object) -> None:
        """Add a command, with the names of the data that it reads and writes."""
        begun = f"echo {name} >> {self._marks}; sleep {self._seconds}; "
        arguments = (Argument(name="command", value=begun + command),)
        self.builder.app(name, component="dlg.apps.bash_shell_app.BashShellApp", arguments=arguments, **fields)  # type: ignore[arg-type]
        for data in reads.split():
            self.builder.connect(data, name)
        for data in writes.split():
            self.builder.connect(name, data)

    def file(self, name: str, path: str = "", **fields: object) -> None:
        """Add a file."""
        arguments = (Argument(name="filepath", value=path or f"{name}.txt"),)
        self.builder.data(name, component=_FILE, arguments=arguments, **fields)  # type: ignore[arg-type]


def scatter(marks: Path, seconds: float) -> PhysicalGraph:
    """One source, eight branches through memory of different sizes and files, and a gather."""
    drawing = _Drawing("scatter", marks, seconds)
    drawing.builder.data("seed")
    drawing.command("SOURCE", "seq 2000 > %o0", writes="seed")
    for at in range(8):
        drawing.builder.data(f"middle{at}")
        if at % 2:
            drawing.file(f"out{at}")
        else:
            drawing.builder.data(f"out{at}")
        size = 10 if at % 3 else 2000  # a content that the journal has, or one that is lost with its process
        drawing.command(f"FIRST{at}", f"head -n {size} %i0 > %o0; echo {at} >> %o0", reads="seed", writes=f"middle{at}")
        drawing.command(f"SECOND{at}", "cksum < %i0 > %o0", reads=f"middle{at}", writes=f"out{at}")
    drawing.builder.data("sums")
    inputs = " ".join(f"%i{at}" for at in range(8))
    drawing.command("GATHER", f"cat {inputs} > %o0", reads=" ".join(f"out{at}" for at in range(8)), writes="sums")
    return drawing.builder.build()


def files(marks: Path, seconds: float) -> PhysicalGraph:
    """One source, eight branches of two steps and a gather, all through files: nothing is lost with a process."""
    drawing = _Drawing("files", marks, seconds)
    drawing.file("seed", persist=True)
    drawing.command("SOURCE", "seq 2000 > %o0", writes="seed")
    for at in range(8):
        drawing.file(f"middle{at}", persist=True)
        drawing.file(f"out{at}", persist=True)
        drawing.command(f"FIRST{at}", f"cat %i0 > %o0; echo {at} >> %o0", reads="seed", writes=f"middle{at}")
        drawing.command(f"SECOND{at}", "cksum < %i0 > %o0", reads=f"middle{at}", writes=f"out{at}")
    drawing.file("sums")
    inputs = " ".join(f"%i{at}" for at in range(8))
    drawing.command("GATHER", f"cat {inputs} > %o0", reads=" ".join(f"out{at}" for at in range(8)), writes="sums")
    return drawing.builder.build()


def loop(marks: Path, seconds: float) -> PhysicalGraph:
    """Ten iterations that hand on a content in memory, and replace the file that they read."""
    drawing = _Drawing("loop", marks, seconds)
    drawing.builder.data("state0")
    drawing.file("log0", "log.txt")
    drawing.command("START", "seq 1000 > %o0; echo 0 > %o1", writes="state0 log0")
    for at in range(1, 11):
        drawing.builder.data(f"state{at}")
        drawing.file(f"log{at}", "log.txt")
        command = f"(cat %i0; echo {at}) > %o0; (cat %i1; wc -l < %i0) > %o1"
        reads = f"state{at - 1} log{at - 1}"
        drawing.command(f"STEP{at}", command, reads=reads, writes=f"state{at} log{at}")
    return drawing.builder.build()


def replacing(marks: Path, seconds: float, steps: int = 6, path: str = "log.txt") -> PhysicalGraph:
    """Iterations that replace one file, each with a sum of what it has read, and at last one that compares all sums."""
    drawing = _Drawing("replacing", marks, seconds)
    drawing.file("log0", path)
    drawing.command("START", "seq 500 > %o0", writes="log0")
    sums = []
    for at in range(1, steps + 1):
        drawing.file(f"log{at}", path)
        sums.append(f"sum{at}")
        drawing.builder.data(f"sum{at}")
        command = f"(cat %i0; seq {at}00) > %o0; cksum < %i0 > %o1; seq 400 >> %o1"
        drawing.command(f"STEP{at}", command, reads=f"log{at - 1}", writes=f"log{at} sum{at}")
    drawing.builder.data("gate").data("end")
    drawing.command("GATE", "echo > %o0", reads=f"log{steps}", writes="gate")
    inputs = " ".join(f"%i{at}" for at in range(1, steps + 1))
    drawing.command("END", f"cat {inputs} > %o0", reads=" ".join(["gate", *sums]), writes="end")
    return drawing.builder.build()


def streams(marks: Path, seconds: float) -> PhysicalGraph:
    """Three filters that read while their producer writes, and one consumer that waits."""
    drawing = GraphBuilder("streams")

    def stage(name: str, kind: str, command: str) -> None:
        value = f"echo {name} >> {marks}; {command}"
        drawing.app(
            name, component=f"dlg.apps.bash_shell_app.{kind}", arguments=(Argument(name="command", value=value),)
        )

    slow = f"for n in $(seq 8); do seq $((n * 1000)); sleep {seconds}; done"
    stage("MAKE", "StreamingOutputBashApp", slow)
    drawing.data("made", component=_FILE, arguments=(Argument(name="filepath", value="made.txt"),))
    drawing.connect("MAKE", "made")
    for at in range(3):
        stage(f"FILTER{at}", "StreamingInputOutputBashApp", f"sed s/$/{at}/")
        drawing.data(f"filtered{at}").connect("made" if not at else f"filtered{at - 1}", f"FILTER{at}", streaming=True)
        drawing.connect(f"FILTER{at}", f"filtered{at}")
    stage("LAST", "StreamingInputOutputBashApp", f"sleep {seconds}; cksum")
    return drawing.data("sum").connect("filtered2", "LAST").connect("LAST", "sum").build()


def thresholds(marks: Path, seconds: float) -> PhysicalGraph:
    """Six branches. Two fail, one of them after a second try; one gather tolerates that, and one does not."""
    drawing = _Drawing("thresholds", marks, seconds)
    for at in range(6):
        drawing.builder.data(f"part{at}")
        command = f"seq {at + 400} > %o0" + ("; exit 3" if at in (1, 4) else "")
        drawing.command(f"MAKE{at}", command, writes=f"part{at}", tries=2 if at == 4 else 1)
    parts = " ".join(f"part{at}" for at in range(6))
    for name, threshold in (("TOLERANT", 40.0), ("STRICT", 10.0)):
        drawing.builder.data(name.lower())
        good = " ".join(f"%i{at}" for at in (0, 2, 3, 5))
        drawing.command(name, f"cat {good} > %o0", reads=parts, writes=name.lower(), error_threshold=threshold)
    drawing.file("end")
    drawing.command("AFTER", "cksum < %i0 > %o0", reads="tolerant", writes="end")
    return drawing.builder.build()


def big(marks: Path, seconds: float) -> PhysicalGraph:
    """Contents of three megabytes in shared memory, a shared drop of several producers, and large results."""
    drawing = _Drawing("big", marks, seconds)
    drawing.builder.data("both").data("result")
    for at in range(3):
        drawing.builder.data(f"large{at}").data(f"copy{at}")
        drawing.command(f"MAKE{at}", f"yes {at} | head -c 3000000 > %o0", writes=f"large{at}")
        drawing.command(f"COPY{at}", "cat %i0 > %o0", reads=f"large{at}", writes=f"copy{at} both")
    drawing.command("USE", "cksum < %i0 > %o0", reads="both", writes="result")
    return drawing.builder.build()


def exits(marks: Path, seconds: float) -> PhysicalGraph:
    """A loop that ends after four of seven iterations; each has files of its own, and what follows is skipped."""
    drawing = _Drawing("exits", marks, seconds)
    drawing.file("state0")
    drawing.command("START", "seq 500 > %o0", writes="state0")
    for at in range(1, 8):
        drawing.file(f"state{at}")
        goes_on = f" go{at - 1}" if at > 1 else ""
        drawing.command(
            f"STEP{at}", f"(cat %i0; echo {at}) > %o0", reads=f"state{at - 1}{goes_on}", writes=f"state{at}"
        )
        drawing.builder.app(
            f"CHECK{at}",
            component="dlg.apps.simple.SimpleBranch",
            arguments=(Argument(name="result", value=at == 4, type="Boolean"),),
        )
        drawing.builder.data(f"exit{at}").data(f"go{at}").connect(f"state{at}", f"CHECK{at}")
        drawing.builder.connect(f"CHECK{at}", f"exit{at}", source_port="true")
        drawing.builder.connect(f"CHECK{at}", f"go{at}", source_port="false")
    drawing.builder.data("end")
    drawing.command(
        "END",
        "cksum < %i0 > %o0",
        reads="state4 " + " ".join(f"exit{at}" for at in range(1, 8)),
        writes="end",
        block_skip=True,
    )
    return drawing.builder.build()


def chain(marks: Path, steps: int) -> PhysicalGraph:
    """Commands in a row that each add a line to the file before; the last content is a result in memory."""
    drawing = _Drawing("chain", marks, 0.0)
    for at in range(1, steps + 1):
        if at < steps:
            drawing.file(f"data{at}")
        else:
            drawing.builder.data(f"data{at}")
        before = "cat %i0" if at > 1 else "echo 0"
        reads = f"data{at - 1}" if at > 1 else ""
        drawing.command(f"STEP{at}", f"({before}; echo {at}) > %o0", reads=reads, writes=f"data{at}")
    return drawing.builder.build()


GRAPHS: dict[str, Callable[[Path, float], PhysicalGraph]] = {
    "scatter": scatter,
    "loop": loop,
    "replacing": replacing,
    "exits": exits,
    "streams": streams,
    "thresholds": thresholds,
    "big": big,
}
"""Functions of the file of marks and the seconds that each application takes."""
