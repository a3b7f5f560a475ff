"""A graph whose parts can be edited between runs, which tells what has run again."""

import sys
from pathlib import Path
from typing import Any

import dropflow
from dropflow import RunResult
from dropflow.reuse.log import taken_results
from tests.drawn_graphs import data, draw, function

HELPERS = "def scaled(x):\n    return 3 * x\n"
READ = "import numpy\ndef Read(input):\n    return [int(word) for word in input.split()]\n"
RMS = "import reuse_helpers as h\ndef Rms(input, offset=0):\n    return sum(h.scaled(x) for x in input) + offset\n"
SHOW = "def Show(input, label='is'):\n    return f'{label} {input}' + '.' * 5000\n"
ALL = {"Read", "Rms", "Show"}


def ran(result: RunResult) -> set[str]:
    """Return the names of the applications of a run that have run."""
    graph, taken = result.graph, taken_results(result.directory)
    apps = {drop for drop in range(graph.drops) if graph.templates[graph.template[drop]].kind}
    assert (result.computed, result.reused) == (len(apps) - len(taken), len(taken))
    return {graph.templates[graph.template[drop]].name for drop in apps - {*taken}}


class Story:
    """The graph input > Read > numbers > Rms > number > Show > text, whose parts can be edited."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.codes = {"Read": READ, "Rms": RMS, "Show": SHOW}
        self.values: dict[str, dict[str, Any]] = {name: {} for name in self.codes}
        self.input = folder / "input.txt"
        self.input.write_text("1 2 3")
        self.helpers = folder / "reuse_helpers.py"
        self.helpers.write_text(HELPERS)
        self.runs = 0

    def graph(self) -> Path:
        """Write the graph to a file, and return its path."""
        nodes = [function(name, text, reads="utf-8", **self.values[name]) for name, text in self.codes.items()]
        for node in nodes[1:]:
            node["fields"][-2]["encoding"] = "pickle"
        nodes += [data("input", "File", filepath=str(self.input)), data("numbers"), data("number"), data("text")]
        return draw(self.folder / "story.graph", nodes, "input > Read > numbers > Rms > number > Show > text")

    def run(self, **options: Any) -> tuple[str, set[str]]:
        """Run it, and return the text at the end, and the names of the applications that ran."""
        self.runs += 1
        sys.modules.pop("reuse_helpers", None)
        place = self.folder / f"run{self.runs}"
        found = dropflow.run(self.graph(), directory=place, runner="inline", reuse=True, check=True, **options)
        assert found.ok, found.failures
        return found.results[0].value().rstrip("."), ran(found)
