"""Write the graphs of this folder: ``python examples/draw.py`` writes every ``*.graph`` file.

Such graphs can also be drawn in EAGLE. A script keeps the code of the functions readable, and the ids stable.
The class `Drawing` is followed by one function for each example. The code that runs *inside* the graphs is in
``functions.py``; each node has the source of its function.
"""

import ast
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from palettes.eagle import (
    EagleEdge,
    EagleField,
    EagleFile,
    EagleNode,
    ModelData,
    WantedPlace,
    category_type,
    circles,
    encode,
    stable_id,
)

HERE = Path(__file__).parent
SOURCE = (HERE / "functions.py").read_text(encoding="utf-8")
DATA_CLASSES = {"Memory": "dlg.data.drops.memory.InMemoryDROP", "File": "dlg.data.drops.file.FileDROP"}
FUNCTION = "dlg.apps.pyfunc.PyFuncApp"
CONSTRUCTS = ("Scatter", "Gather", "Loop", "GroupBy")
MARGIN = 200


class Drawing:
    """A graph under construction. Ports are added by the links that use them."""

    def __init__(self, name: str, description: str) -> None:
        self.name = name
        self.description = description
        self.nodes: dict[str, dict[str, Any]] = {}
        self.places: dict[str, WantedPlace] = {}
        self.collectors: dict[str, str] = {}
        """Constructs by the names of their output applications."""
        self.links: list[EagleEdge] = []

    def data(self, name: str, x: int, y: int, *, inside: str = "", category: str = "Memory", **values: Any) -> None:
        """Add a data drop: ``Memory``, or a ``File`` with a `filepath`."""
        fields = [
            self._field(name, "dropclass", DATA_CLASSES[category]),
            self._field(name, "data_volume", 1, parameter_type="ConstraintParameter"),
            *(self._field(name, key, value) for key, value in values.items()),
        ]
        self._add(name, category, (x, y), inside, fields)

    def app(self, name: str, x: int, y: int, dropclass: str, *, inside: str = "", **values: Any) -> None:
        """Add a built-in application."""
        category = "Branch" if dropclass.endswith(".Branch") else "DALiuGEApp"
        self._add(name, category, (x, y), inside, self._app_fields(name, dropclass, values))

    def command(self, name: str, x: int, y: int, command: str, *, kind: str = "BashShellApp") -> None:
        """Add a shell command. Its `kind` determines its standard input and output."""
        fields = self._app_fields(name, f"dlg.apps.bash_shell_app.{kind}", {"command": command})
        self._add(name, "BashShellApp", (x, y), "", fields)

    def function(self, name: str, x: int, y: int, function: str, *, inside: str = "", **values: Any) -> None:
        """Add an application that calls `function` of functions.py. Its ports have the names of its parameters."""
        fields = self._app_fields(name, FUNCTION, {"func_name": function, "func_code": source_of(function), **values})
        self._add(name, "PyFuncApp", (x, y), inside, fields)

    def construct(
        self,
        name: str,
        category: str,
        x: int,
        y: int,
        *,
        inside: str = "",
        app: str = "",
        app_class: str = "",
        **values: Any,
    ) -> None:
        """Add a construct, and its input application if `app` is given."""
        fields = [self._field(name, key, value, parameter_type="ConstructParameter") for key, value in values.items()]
        self._add(name, category, (x, y), inside, fields)
        if app:
            label = f"{name}/{app}"
            given = {key: values[key] for key in ("num_of_copies", "input_error_threshold") if key in values}
            self.nodes[name] |= {
                "input_application_name": app,
                "input_application_type": "DALiuGEApp",
                "input_application_id": stable_id(self.name, label),
                "input_app_fields": self._app_fields(label, app_class, given),
            }

    def collect(self, name: str, construct: str, **values: Any) -> None:
        """Add the output application of a construct, which collects what its copies made.

        An edge from the content of a construct to a Gather beside it does the same, but EAGLE warns of such edges.
        """
        self.collectors[name] = construct
        self.nodes[construct] |= {
            "output_application_name": name,
            "output_application_type": "DALiuGEApp",
            "output_application_id": stable_id(self.name, name),
            "output_app_fields": self._app_fields(name, "dlg.apps.simple.ArrayGatherApp", values),
        }

    def link(
        self, source: str, target: str, *, ports: tuple[str, str] = ("", ""), encoding: str = "pickle", **flags: Any
    ) -> None:
        """Add an edge. By default the ports are called ``io`` on data, ``output`` and ``input`` on applications."""
        out = self._port(source, ports[0] or ("io" if self._is_data(source) else "output"), "OutputPort", encoding)
        into = self._port(target, ports[1] or ("io" if self._is_data(target) else "input"), "InputPort", encoding)
        self.links.append(
            EagleEdge(source=self._id(source), source_port=out, target=self._id(target), target_port=into, **flags)
        )

    def document(self) -> EagleFile:
        """Return the graph as EAGLE writes it."""
        drawn = circles(self.places)
        left, top = (min(one.x for one in drawn.values()), min(one.y for one in drawn.values()))
        nodes = tuple(
            EagleNode(
                **{key: tuple(value) if isinstance(value, list) else value for key, value in node.items()},
                x=MARGIN + drawn[name].x - left,
                y=MARGIN + drawn[name].y - top,
            )
            for name, node in self.nodes.items()
        )
        return EagleFile(
            model_data=ModelData(
                file_path=f"{self.name}.graph",
                file_type="Graph",
                short_description=self.description,
                detailed_description=f"{self.description} Part of the examples of dropflow.",
                readonly=False,
                nodes=len(nodes),
            ),
            active_graph_config_id=None,
            graph_configurations={},
            node_data_array=nodes,
            link_data_array=tuple(self.links),
        )

    def _id(self, name: str) -> str:
        return stable_id(self.name, self.collectors.get(name, name))

    def _is_data(self, name: str) -> bool:
        return name in self.nodes and self.nodes[name]["category"] in DATA_CLASSES

    def _add(self, name: str, category: str, place: tuple[int, int], inside: str, fields: list[EagleField]) -> None:
        self.nodes[name] = {
            "category": category,
            "category_type": category_type(category),
            "is_group": category in CONSTRUCTS,
            "id": self._id(name),
            "name": name,
            "fields": fields,
        }
        self.places[name] = WantedPlace(*place, inside)
        if inside:
            self.nodes[name]["parent_id"] = self._id(inside)

    def _app_fields(self, owner: str, dropclass: str, values: dict[str, Any]) -> list[EagleField]:
        kinds = dict.fromkeys(("func_name", "func_code", "command"), "ComponentParameter")
        return [
            self._field(owner, "dropclass", dropclass),
            self._field(owner, "execution_time", 1, parameter_type="ConstraintParameter"),
            self._field(owner, "num_cpus", 1, parameter_type="ConstraintParameter"),
            *(
                self._field(owner, key, value, parameter_type=kinds.get(key, "ApplicationArgument"))
                for key, value in values.items()
            ),
        ]

    def _field(self, owner: str, name: str, value: Any, *, parameter_type: str = "ComponentParameter") -> EagleField:
        types = {bool: "Boolean", int: "Integer", float: "Float", list: "Json"}
        kind = "Python" if name == "func_code" else types.get(type(value), "String")
        value = json.dumps(value) if kind == "Json" else value
        return EagleField(
            name=name,
            value=value,
            default_value=value,
            type=kind,
            id=stable_id(self.name, owner, name),
            parameter_type=parameter_type,
        )

    def _port(self, owner: str, name: str, usage: str, encoding: str) -> str:
        node = self.nodes[self.collectors.get(owner, owner)]
        side = "output_app_fields" if owner in self.collectors else "input_app_fields"
        fields = node[side if node["is_group"] else "fields"]
        for place, field in enumerate(fields):
            if field.name == name:
                both = field.usage not in ("NoPort", usage)
                changed = {"usage": "InputOutput" if both else usage, "encoding": encoding}
                fields[place] = EagleField(**{key: getattr(field, key) for key in field.__struct_fields__} | changed)
                return str(field.id)
        made = EagleField(
            name=name,
            type="Object",
            encoding=encoding,
            id=stable_id(self.name, owner, "port", name),
            # EAGLE wants the outputs of a Branch to be parameters of the component.
            parameter_type="ComponentParameter" if node["category"] == "Branch" else "ApplicationArgument",
            usage=usage,
        )
        fields.append(made)
        return made.id


def source_of(function: str) -> str:
    """Return the source of a function of functions.py."""
    for node in ast.parse(SOURCE).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return (ast.get_source_segment(SOURCE, node) or "") + "\n"
    raise LookupError(f"functions.py has no function {function}")


def hello() -> Drawing:
    """Return a graph of one application and one file."""
    graph = Drawing("hello", "Greets the world in a file.")
    graph.app("Greet", 2, 4, "dlg.apps.simple.HelloWorldApp", greet="World")
    graph.data("Greeting", 8, 4, category="File", filepath="hello.txt")
    graph.link("Greet", "Greeting", ports=("hello", ""))
    return graph


def nested_scatter_gather() -> Drawing:
    """Return a scatter in a scatter, which adds the numbers of each row, then the sums of all rows."""
    graph = Drawing("nested-scatter-gather", "Squares a table of numbers cell by cell, and sums it up row by row.")
    graph.function("Make table", 2, 6, "make_table")
    graph.data("Table", 6, 6)
    graph.construct(
        "Rows", "Scatter", 10, 2, app="Split rows", app_class="dlg.apps.simple.GenericScatterApp", num_of_copies=3
    )
    graph.data("Row", 12, 6, inside="Rows")
    graph.function("Flatten", 15, 6, "flatten", inside="Rows")
    graph.data("Numbers", 18, 6, inside="Rows")
    graph.construct(
        "Cells",
        "Scatter",
        21,
        3,
        inside="Rows",
        app="Split cells",
        app_class="dlg.apps.simple.GenericScatterApp",
        num_of_copies=4,
    )
    graph.data("Cell", 23, 6, inside="Cells")
    graph.function("Square", 26, 6, "square", inside="Cells")
    graph.data("Squared", 29, 6, inside="Cells")
    graph.collect("Row gather", "Cells")
    graph.data("Row of squares", 36, 6, inside="Rows")
    graph.function("Sum row", 39, 6, "total", inside="Rows")
    graph.data("Row sum", 42, 6, inside="Rows")
    graph.collect("Table gather", "Rows")
    graph.data("Row sums", 49, 6)
    graph.function("Report", 52, 6, "report_sums")
    graph.data("Sums", 56, 6, category="File", filepath="sums.txt")
    chain = ["Make table", "Table", "Rows", "Row", "Flatten", "Numbers", "Cells", "Cell", "Square", "Squared"]
    chain += ["Row gather", "Row of squares", "Sum row", "Row sum", "Table gather", "Row sums", "Report"]
    _chain(graph, chain)
    graph.link("Report", "Sums", encoding="utf-8")
    return graph


def corner_turn() -> Drawing:
    """Return a graph that groups samples of antennas by channel."""
    graph = Drawing("corner-turn", "Turns samples that are grouped by antenna into samples grouped by channel.")
    split = "dlg.apps.simple.GenericScatterApp"
    graph.function("Observe", 2, 6, "observe")
    graph.data("Samples", 6, 6)
    graph.construct("Antennas", "Scatter", 10, 2, app="Split antennas", app_class=split, num_of_copies=3)
    graph.data("Antenna", 12, 6, inside="Antennas")
    graph.function("Flatten", 15, 6, "flatten", inside="Antennas")
    graph.data("Spectrum", 18, 6, inside="Antennas")
    graph.construct(
        "Channels", "Scatter", 21, 3, inside="Antennas", app="Split channels", app_class=split, num_of_copies=4
    )
    graph.data("Sample", 23, 6, inside="Channels")
    graph.construct(
        "By channel", "GroupBy", 28, 2, app="Corner turn", app_class="dropflow.apps.GroupByApp", num_of_inputs=3
    )
    graph.function("Stack antennas", 30, 6, "stack", inside="By channel", group_start=True)
    graph.data("Channel", 34, 6, inside="By channel")
    graph.collect("Gather channels", "By channel")
    graph.data("All channels", 41, 6)
    graph.function("Stack channels", 44, 6, "stack")
    graph.data("Turned", 48, 6, category="File", filepath="by-channel.npy")
    chain = ["Observe", "Samples", "Antennas", "Antenna", "Flatten", "Spectrum", "Channels", "Sample", "By channel"]
    _chain(graph, chain)
    _chain(graph, ["Stack antennas", "Channel", "Gather channels", "All channels", "Stack channels"])
    graph.link("Stack channels", "Turned", encoding="npy")
    return graph


def array_loop() -> Drawing:
    """Return a loop of Heron's method on an array, which ends when the values converge."""
    graph = Drawing(
        "array-loop", "Improves an array of square roots step by step, and leaves the loop when it is done."
    )
    graph.function("Start", 2, 6, "first_guess")
    graph.data("Guess", 6, 6)
    graph.construct("Steps", "Loop", 10, 2, num_of_iter=12)
    graph.function("Improve", 12, 6, "improve", inside="Steps", group_start=True)
    graph.data("Better", 16, 6, inside="Steps")
    graph.app(
        "Good enough?",
        20,
        6,
        "dlg.apps.simple.Branch",
        inside="Steps",
        func_name="is_good",
        func_code=source_of("is_good"),
    )
    graph.data("Again", 25, 9, inside="Steps", group_end=True)
    graph.data("Done", 25, 3, inside="Steps")
    graph.app("Leave", 30, 4, "dlg.apps.simple.CopyApp", block_skip=True)
    graph.data("Roots", 34, 4)
    graph.function("Report", 38, 4, "report_roots")
    graph.data("Report file", 42, 4, category="File", filepath="roots.txt")
    graph.link("Start", "Guess")
    graph.link("Guess", "Improve", loop_aware="1")
    _chain(graph, ["Improve", "Better"])
    graph.link("Better", "Good enough?", ports=("", "x"))
    graph.link("Good enough?", "Done", ports=("true", ""))
    graph.link("Good enough?", "Again", ports=("false", ""))
    graph.link("Again", "Improve", closes_loop=True)
    _chain(graph, ["Done", "Leave", "Roots", "Report"])
    graph.link("Report", "Report file", encoding="utf-8")
    return graph


def error_threshold() -> Drawing:
    """Return a graph with two failures among ten measurements, and a gather that tolerates 30 percent."""
    graph = Drawing("error-threshold", "Two of ten measurements fail, and the result says which fraction was lost.")
    graph.function("Plan", 2, 6, "make_plan")
    graph.data("Targets", 6, 6)
    graph.construct(
        "Measurements", "Scatter", 10, 2, app="Split", app_class="dlg.apps.simple.GenericScatterApp", num_of_copies=10
    )
    graph.data("Target", 12, 6, inside="Measurements")
    graph.function("Measure", 16, 6, "measure", inside="Measurements")
    graph.data("Value", 20, 6, inside="Measurements")
    graph.collect("Collect", "Measurements", input_error_threshold=30)
    graph.data("Values", 27, 6)
    graph.function("Average", 30, 6, "average_of_the_rest", planned=10)
    graph.data("Report", 34, 6, category="File", filepath="report.txt")
    _chain(graph, ["Plan", "Targets", "Measurements", "Target", "Measure", "Value", "Collect", "Values", "Average"])
    graph.link("Average", "Report", encoding="utf-8")
    return graph


def imaging() -> Drawing:
    """Return a graph that simulates a radio observation, images it channel by channel and finds its sources."""
    graph = Drawing("imaging", "Simulates a radio observation, images it channel by channel and finds its sources.")
    graph.function("Make sky", 2, 3, "make_sky")
    graph.data("Sky", 5, 3)
    graph.function("Plan observations", 5, 7, "plan_observations", channels=8)
    graph.data("Plan", 8, 7)
    graph.construct(
        "Channels", "Scatter", 11, 4, app="Split band", app_class="dlg.apps.simple.GenericScatterApp", num_of_copies=8
    )
    graph.data("Channel", 12, 7, inside="Channels")
    graph.function("Simulate", 15, 6, "simulate", inside="Channels")
    graph.data("Visibilities", 19, 6, inside="Channels")
    graph.function("Grid and FFT", 23, 6, "grid_and_fft", inside="Channels")
    graph.data("Dirty image", 27, 6, inside="Channels")
    graph.collect("All channels", "Channels")
    graph.data("Images", 34, 6)
    graph.function("Make cube", 37, 6, "make_cube")
    graph.data("Cube", 40, 6, category="File", filepath="cube.npy")
    graph.function("Find sources", 44, 6, "find_sources")
    graph.data("Found", 48, 6)
    graph.function("Compare", 52, 3, "compare")
    graph.data("Catalogue", 56, 3, category="File", filepath="catalogue.txt")
    graph.function("Draw", 52, 8, "draw_picture")
    graph.data("Picture", 56, 8, category="File", filepath="sky.png")
    graph.link("Make sky", "Sky")
    graph.link("Sky", "Plan observations", ports=("", "sky"))
    graph.link("Plan observations", "Plan")
    graph.link("Plan", "Channels")
    graph.link("Channels", "Channel")
    graph.link("Channel", "Simulate", ports=("", "observations"))
    graph.link("Simulate", "Visibilities")
    graph.link("Visibilities", "Grid and FFT", ports=("", "visibilities"))
    graph.link("Grid and FFT", "Dirty image")
    graph.link("Dirty image", "All channels")
    graph.link("All channels", "Images")
    graph.link("Images", "Make cube", ports=("", "images"))
    graph.link("Make cube", "Cube", encoding="npy")
    graph.link("Cube", "Find sources", ports=("", "cube"), encoding="npy")
    graph.link("Find sources", "Found")
    graph.link("Found", "Compare", ports=("", "found"))
    graph.link("Sky", "Compare", ports=("", "sky"))
    graph.link("Compare", "Catalogue", encoding="utf-8")
    graph.link("Found", "Draw", ports=("", "found"))
    graph.link("Cube", "Draw", ports=("", "cube"), encoding="npy")
    graph.link("Draw", "Picture", encoding="binary")
    return graph


RECEIVE = """for block in 0 1 2 3 4 5 6 7; do
  awk -v first=$((256 * block)) 'BEGIN {
    for (n = first; n < first + 256; n++) printf "%d %.6f\\n", n, sin(0.2515728 * n) + 3 * (n % 2)
  }'
  sleep 0.05
done"""
AVERAGE = """awk '{ printf "%d %.6f\\n", $1, ($2 + last) / 2; last = $2; fflush() }'"""


def live_receiver() -> Drawing:
    """Return a receiver whose samples are filtered, and checked by a checksum, while it writes them."""
    graph = Drawing("live-receiver", "Filters the samples of a receiver while they come, and finds the tone in them.")
    graph.command("Receive", 2, 6, RECEIVE, kind="StreamingOutputBashApp")
    graph.data("Samples", 7, 6, category="File", filepath="samples.txt", streaming=True)
    graph.command("Remove interference", 12, 6, AVERAGE, kind="StreamingInputOutputBashApp")
    graph.data("Filtered", 17, 6, streaming=True)
    graph.app("Checksum", 22, 3, "dlg.apps.crc.CRCApp")
    graph.data("Sum", 27, 3, category="File", filepath="crc.txt")
    graph.function("Find tone", 22, 8, "find_tone")
    graph.data("Tone", 27, 8, category="File", filepath="tone.txt")
    _chain(graph, ["Receive", "Samples", "Remove interference", "Filtered"])
    graph.link("Filtered", "Checksum", ports=("", "data"))
    graph.link("Checksum", "Sum", ports=("crc", ""), encoding="utf-8")
    graph.link("Filtered", "Find tone", ports=("", "samples"), encoding="utf-8")
    graph.link("Find tone", "Tone", encoding="utf-8")
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
    return {f"{graph.name}.graph": encode(graph.document()) for graph in (example() for example in EXAMPLES)}


def _chain(graph: Drawing, names: list[str]) -> None:
    """Link each node to the next."""
    for source, target in pairwise(names):
        graph.link(source, target)


if __name__ == "__main__":
    for name, content in files().items():
        (HERE / name).write_bytes(content)
