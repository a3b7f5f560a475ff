"""Which contents of other nodes are still needed here: `dropflow.engine.content_table.ContentTable.needs`."""

from pathlib import Path

import pytest

from dropflow.clock import SystemClock
from dropflow.data.repository import LocalRepository
from dropflow.engine.content_table import ContentTable, kept_drops
from dropflow.engine.drop_table import DropTable
from dropflow.graph.build import GraphBuilder
from dropflow.states import DropState

_A, _B, _C, _D = range(4)


@pytest.mark.parametrize(
    ("here", "elsewhere", "is_needed"),
    [
        (DropState.INITIALIZED, DropState.COMPLETED, True),
        (DropState.WRITING, DropState.COMPLETED, True),
        (DropState.COMPLETED, DropState.INITIALIZED, False),
        (DropState.ERROR, DropState.INITIALIZED, False),
    ],
)
def test_a_content_is_needed_until_its_consumers_here_are_settled(
    here: DropState,
    elsewhere: DropState,
    is_needed: bool,  # noqa: FBT001 - from parametrize
    tmp_path: Path,
) -> None:
    """Its owner releases it then, perhaps before another view tells of it again. Consumers elsewhere do not count."""
    builder = GraphBuilder().app("A").data("b").app("C").app("D")
    graph = builder.connect("A", "b").connect("b", "C").connect("b", "D").build()
    remote = frozenset((_A, _B, _D))
    repository = LocalRepository(tmp_path, "s", SystemClock(), graph)
    contents = ContentTable(graph, repository, remote, kept_drops(graph))
    drops = DropTable(graph, remote)
    drops.states[_C], drops.states[_D] = here, elsewhere

    assert contents.needs(drops, _B, _B) is is_needed
