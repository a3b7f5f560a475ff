"""Write the graphs of this folder: ``python examples/draw.py`` writes all ``*.graph`` files but ``estimate-pi.graph``.

Such graphs can also be drawn in EAGLE. A script keeps the code of the functions readable, and the ids stable.
There is one function for each example. The code that runs *inside* the graphs is in ``functions.py``; each node has
the source of its function.
"""

import sys
from pathlib import Path
from typing import Any

from dropflow import Graph, app

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import functions  # noqa: E402 - from this folder, wherever the script is called

GATHER = "dlg.apps.simple.ArrayGatherApp"
SHELL = "dlg.apps.bash_shell_app"


def call(graph: Graph, name: str, function: str, written: str, *args: Any, **kwargs: Any) -> Any:
    """Add a node that calls a function of functions.py, and return its data, which get the name `written`."""
    return graph.call(app(name=name)(getattr(functions, function)), *args, **kwargs).renamed(written)


def hello() -> Graph:
    """Return a graph of one application and one file."""
    with Graph("hello", "Greets the world in a file.") as graph:
        greeting = graph.component("dlg.apps.simple.HelloWorldApp", name="Greet", greet="World")
        greeting.save("hello.txt").renamed("Greeting")
    return graph


def nested_scatter_gather() -> Graph:
    """Return a scatter in a scatter, which adds the numbers of each row, then the sums of all rows."""
    with Graph("nested-scatter-gather", "Squares a table of numbers cell by cell, and sums it up row by row.") as graph:
        table = call(graph, "Make table", "make_table", "Table")
        with graph.scatter(table, copies=3, name="Rows") as row:
            numbers = call(graph, "Flatten", "flatten", "Numbers", row.renamed("Row"))
            with graph.scatter(numbers, copies=4, name="Cells") as cell:
                squared = call(graph, "Square", "square", "Squared", cell.renamed("Cell"))
            squares = graph.component(GATHER, name="Row gather", inputs={"input": squared}).renamed("Row of squares")
            row_sum = call(graph, "Sum row", "total", "Row sum", squares)
        sums = graph.component(GATHER, name="Table gather", inputs={"input": row_sum}).renamed("Row sums")
        call(graph, "Report", "report_sums", "Sums", sums).save("sums.txt")
    return graph


def corner_turn() -> Graph:
    """Return a graph that groups samples of antennas by channel."""
    with Graph("corner-turn", "Turns samples that are grouped by antenna into samples grouped by channel.") as graph:
        samples = call(graph, "Observe", "observe", "Samples")
        with graph.scatter(samples, copies=3, name="Antennas") as antenna:
            spectrum = call(graph, "Flatten", "flatten", "Spectrum", antenna.renamed("Antenna"))
            with graph.scatter(spectrum, copies=4, name="Channels") as sample:
                sample.renamed("Sample")
        with graph.group_by(sample, name="By channel") as group:
            channel = call(graph, "Stack antennas", "stack", "Channel", group)
        channels = graph.component(GATHER, name="Gather channels", inputs={"input": channel}).renamed("All channels")
        call(graph, "Stack channels", "stack", "Turned", channels).save("by-channel.npy")
    return graph


def array_loop() -> Graph:
    """Return a loop of Heron's method on an array, which ends when the values converge."""
    description = "Improves an array of square roots step by step, and leaves the loop when it is done."
    with Graph("array-loop", description) as graph:
        guess = call(graph, "Start", "first_guess", "Guess")
        with graph.loop(iterations=12, name="Steps") as steps:
            known = steps.carry(guess)
            better = call(graph, "Improve", "improve", "Better", known)
            done, again = graph.branch(app(name="Good enough?")(functions.is_good), better)
            steps.again(known, again.renamed("Again"))
        roots = steps.exited(done.renamed("Done")).renamed("Roots")
        call(graph, "Report", "report_roots", "Report file", roots).save("roots.txt")
    return graph


def error_threshold() -> Graph:
    """Return a graph with two failures among ten measurements, and a gather that tolerates 30 percent."""
    with Graph(
        "error-threshold", "Two of ten measurements fail, and the result says which fraction was lost."
    ) as graph:
        targets = call(graph, "Plan", "make_plan", "Targets")
        with graph.scatter(targets, copies=10, name="Measurements") as target:
            value = call(graph, "Measure", "measure", "Value", target.renamed("Target"))
        tolerant = {"input_error_threshold": 30}
        values = graph.component(GATHER, name="Collect", inputs={"input": value}, settings=tolerant).renamed("Values")
        call(graph, "Average", "average_of_the_rest", "Report", values, planned=10).save("report.txt")
    return graph


def imaging() -> Graph:
    """Return a graph that simulates a radio observation, images it channel by channel and finds its sources."""
    description = "Simulates a radio observation, images it channel by channel and finds its sources."
    with Graph("imaging", description) as graph:
        sky = call(graph, "Make sky", "make_sky", "Sky")
        plan = call(graph, "Plan observations", "plan_observations", "Plan", sky, channels=8)
        with graph.scatter(plan, copies=8, name="Channels") as channel:
            visibilities = call(graph, "Simulate", "simulate", "Visibilities", channel.renamed("Channel"))
            image = call(graph, "Grid and FFT", "grid_and_fft", "Dirty image", visibilities)
        images = graph.component(GATHER, name="All channels", inputs={"input": image}).renamed("Images")
        cube = call(graph, "Make cube", "make_cube", "Cube", images).save("cube.npy")
        found = call(graph, "Find sources", "find_sources", "Found", cube)
        call(graph, "Compare", "compare", "Catalogue", found, sky).save("catalogue.txt")
        call(graph, "Draw", "draw_picture", "Picture", cube, found).save("sky.png")
    return graph


RECEIVE = """for block in 0 1 2 3 4 5 6 7; do
  awk -v first=$((256 * block)) 'BEGIN {
    for (n = first; n < first + 256; n++) printf "%d %.6f\\n", n, sin(0.2515728 * n) + 3 * (n % 2)
  }'
  sleep 0.05
done"""
AVERAGE = """awk '{ printf "%d %.6f\\n", $1, ($2 + last) / 2; last = $2; fflush() }'"""


def live_receiver() -> Graph:
    """Return a receiver whose samples are filtered, and checked by a checksum, while it writes them."""
    with Graph(
        "live-receiver", "Filters the samples of a receiver while they come, and finds the tone in them."
    ) as graph:
        samples = graph.component(
            f"{SHELL}.StreamingOutputBashApp", name="Receive", outputs=("output",), command=RECEIVE
        )
        samples.save("samples.txt").set(streaming=True).renamed("Samples")
        filtered = graph.component(
            f"{SHELL}.StreamingInputOutputBashApp",
            name="Remove interference",
            inputs={"input": samples},
            outputs=("output",),
            command=AVERAGE,
        )
        filtered.save("filtered.txt").set(streaming=True).renamed("Filtered")
        checksum = graph.component("dlg.apps.crc.CRCApp", name="Checksum", inputs={"data": filtered}, outputs=("crc",))
        checksum.save("crc.txt").renamed("Sum")
        call(graph, "Find tone", "find_tone", "Tone", filtered).save("tone.txt")
    return graph


EXAMPLES = (
    hello,
    nested_scatter_gather,
    corner_turn,
    array_loop,
    error_threshold,
    imaging,
    live_receiver,
)


def files() -> dict[str, bytes]:
    """Return the content of every graph file of this folder, by name."""
    return {f"{graph.name}.graph": graph.document() for graph in (example() for example in EXAMPLES)}


if __name__ == "__main__":
    for name, content in files().items():
        (HERE / name).write_bytes(content)
