"""Graphs of commands and files."""

from itertools import pairwise

from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument


def argument(name: str, value: object) -> Argument:
    """A parameter of a component."""
    return Argument(name=name, value=value, parameter_type="ComponentParameter")


class Drawing:
    """A graph of commands and files."""

    def __init__(self) -> None:
        self.builder = GraphBuilder("g")

    def bash(self, name: str, command: str) -> None:
        """Add a command."""
        self.builder.app(
            name,
            component="dlg.apps.bash_shell_app.BashShellApp",
            category="BashShellApp",
            arguments=(argument("command", command),),
        )

    def file(self, name: str, path: str = "") -> None:
        """Add a file drop."""
        self.builder.data(
            name,
            component="dlg.data.drops.file.FileDROP",
            category="File",
            arguments=(argument("filepath", path),) if path else (),
        )

    def memory(self, name: str) -> None:
        """Add a memory drop."""
        self.builder.data(name, component="dlg.data.drops.memory.InMemoryDROP", category="Memory")

    def directory(self, name: str, path: str) -> None:
        """Add a directory drop."""
        self.builder.data(
            name,
            component="dlg.data.drops.directorycontainer.DirectoryContainer",
            category="Directory",
            arguments=(argument("dirname", path),),
        )

    def connect(self, *names: str) -> None:
        """Connect nodes in a row."""
        for source, target in pairwise(names):
            self.builder.connect(source, target)

    def build(self) -> PhysicalGraph:
        """Return the graph."""
        return self.builder.build()
