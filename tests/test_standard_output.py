"""Output of compiled libraries to descriptor 1 is not mixed with the output of a command."""

import json
import subprocess
import sys
from pathlib import Path

from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import save

_NATIVE = """
import os, sys
from dropflow.standard_output import reserve
reserve()
os.write(1, b"from a library")
os.system("echo from a program")
sys.stdout.write("the answer")
"""

_PARTITIONED = """
import sys
from pathlib import Path
from dropflow.graph.codec import load
from translator.plan.registry import partition
from translator.options import PartitionOptions
print("before")
graph = partition(load(Path(sys.argv[1])), PartitionOptions(algorithm="metis", parts=7))
print("parts", graph.parts)
"""


def _lopsided() -> GraphBuilder:
    """Return a graph that METIS cannot bisect into 7 parts, because nearly all load is in two drops."""
    drawing = GraphBuilder("lopsided")
    for number, weight in enumerate([1e3, 1e3, 1e1, 1e1, 1.0, 1.0, 1.0, 1e1, 1e4, 1e3]):
        drawing.app(f"a{number}", weight=weight).data(f"d{number}").connect(f"a{number}", f"d{number}")
    return drawing


def _python(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=60)


def test_only_the_output_of_the_command_is_on_standard_output() -> None:
    """Native code and programs that inherit descriptor 1 write to standard error."""
    done = _python("-c", _NATIVE)

    assert done.stdout == "the answer"
    assert sorted(done.stderr.replace("library", "library\n").split("\n")) == ["", "from a library", "from a program"]


def test_a_graph_that_metis_cannot_bisect_gives_one_json_object(tmp_path: Path) -> None:
    """``partition --output json`` prints one object, although METIS prints too."""
    save(_lopsided().build(), tmp_path / "g.dfg")
    done = _python("-m", "dropflow", "partition", str(tmp_path / "g.dfg"), "-n", "7", "--output", "json")

    assert json.loads(done.stdout)["parts"] == 7
    assert "Cannot bisect" in done.stderr


def test_a_program_that_partitions_has_its_standard_output_to_itself(tmp_path: Path) -> None:
    """Also without the command, what METIS prints goes to standard error, and the program's own lines stay in order."""
    save(_lopsided().build(), tmp_path / "g.dfg")
    done = _python("-c", _PARTITIONED, str(tmp_path / "g.dfg"))

    assert done.stdout == "before\nparts 7\n"
    assert "Cannot bisect" in done.stderr
