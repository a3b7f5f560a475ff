"""``dropflow info``, ``version`` and ``palette``."""

from pathlib import Path

from dropflow.version import __version__
from tests.cli.answers import Command

NESTED = Path(__file__).resolve().parents[2] / "examples" / "nested-scatter-gather.graph"


def test_info_shows_each_logical_node_with_its_shape(command: Command) -> None:
    """A node inside two scatters has a two-dimensional index space."""
    lines = command("info", NESTED).text.splitlines()

    assert [line for line in lines if "Squared" in line and "3 x 4" in line and " 12 " in line]


def test_a_damaged_graph_file_is_bad_input(command: Command, tmp_path: Path) -> None:
    """One flipped byte is noticed; the message is short."""
    command("unroll", NESTED, "-o", tmp_path / "g.dfg")
    content = bytearray((tmp_path / "g.dfg").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "g.dfg").write_bytes(content)
    answer = command("info", tmp_path / "g.dfg")

    assert (answer.status, len(answer.err.splitlines()) <= 3) == (2, True)
    assert "DF102" in answer.err


def test_version_lists_the_libraries(command: Command) -> None:
    """The first line has the version of dropflow, and the others those of the libraries."""
    first, *others = command("--version").text.splitlines()

    assert first.startswith(f"dropflow {__version__}, Python ")
    assert {line.split()[0] for line in others} >= {"numpy", "msgspec", "pymetis"}


def test_palettes_are_built_and_checked(command: Command, tmp_path: Path) -> None:
    """--check lists missing files, and without it they are written."""
    stale = command("palette", "build", "--check", "--into", tmp_path, "--output", "json")
    assert (stale.status, len(stale.json["stale"])) == (1, 2)
    command("palette", "build", "--into", tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == {"builtin.palette", "template.palette"}
    assert command("palette", "build", "--check", "--into", tmp_path).status == 0
