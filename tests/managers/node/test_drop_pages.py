"""Pages of the list of drops, in any order, on a node and merged from several."""

import heapq
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.records import DropQuery
from dropflow.graph.physical import PhysicalGraph
from dropflow.testing.strategies import graphs
from dropflow.web.cause_groups import order_of
from managers.node.views import page
from tests.engine.test_core_slices import Cluster, _chance

_SORTS = [sign + name for sign in ("", "-") for name in ("row", "id", "name", "state", "node", "attempt", "size")]


class _Live:
    """A session whose core does not change."""

    def __init__(self, core: Any) -> None:
        self.core = core

    def call(self, function: Any) -> Any:
        """Return what a function returns."""
        return function(self)

    def content(self, drop: int) -> Any:
        """Return a content of some size for every third drop."""
        return type("Content", (), {"size": drop % 7, "kind": "memory"}) if drop % 3 == 0 else None


@given(graphs(), st.sampled_from(_SORTS), st.integers(0, 2**32), st.integers(0, 10), st.integers(1, 10))
def test_a_page_of_a_sorted_list_is_that_of_the_whole_list(
    graph: PhysicalGraph, sort: str, seed: int, offset: int, limit: int
) -> None:
    """Pages are cut from the list as single rows are compared, whatever the node computes; merged ones are in order."""
    chance = _chance(seed)
    places = ("n0", "n1")
    placed = replace(graph, part=np.array([chance.randrange(2) for _ in range(graph.drops)], np.int32), places=places)
    cluster = Cluster(placed, chance)
    cluster.run()
    key, is_reversed = order_of(sort)
    lists = []
    for node in cluster.nodes.values():
        live = _Live(node.core)
        whole = page(live, node.piece, DropQuery(limit=1000), whole=graph.drops).drops
        wanted = sorted(whole, key=key, reverse=is_reversed)
        found = page(live, node.piece, DropQuery(sort=sort, offset=offset, limit=limit), whole=graph.drops)

        assert found.total == len(whole)
        assert list(found.drops) == wanted[offset : offset + limit]
        for one in whole[:3]:
            for query in (DropQuery(row=one.drop), DropQuery(oid=one.oid)):
                assert page(live, node.piece, query, whole=graph.drops).drops == (one,)
        lists.append(wanted)
    merged = list(heapq.merge(*lists, key=key, reverse=is_reversed))
    assert merged == sorted(merged, key=key, reverse=is_reversed)
