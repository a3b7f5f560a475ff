"""The page of a node, with plots of its load."""

from typing import Any

from dropflow.api.records import Load, LoadSample, NodeHistory
from dropflow.testing.fake_manager import FakeManager
from managers.web.views import plots_of
from tests.managers.web.reading import ask


def test_a_plot_goes_from_zero_to_what_the_host_has() -> None:
    """The upper edge is all memory or all workers, or the greatest value; network is a rate."""
    samples = tuple(
        LoadSample(time, processor, 1 << 30, 0, received, 0, 1, 2)
        for time, processor, received in ((0.0, 0.0, 0), (5.0, 100.0, 5_000))
    )
    found = {plot.title: plot for plot in plots_of(NodeHistory(node="n", every=5.0, samples=samples), _LOAD)}

    assert found["Processor"].line == "0.0,48.0 300.0,1.0"
    assert found["Network"].now == "1.0 kB/s"
    assert (found["Attempts that run"].now, found["Attempts that run"].most) == ("2", "4")
    assert plots_of(NodeHistory(node="n", every=5.0, samples=samples[:1]), _LOAD) == ()


_LOAD = Load(workers=4, memory=4 << 30, disk=1 << 40)


def test_a_node_has_a_page(serve: Any) -> None:
    """It has all plots; one that does not exist is not found."""
    url = serve(FakeManager(role="island", nodes=("n0",)))
    text = ask(url, "/nodes/n0").text

    for title in ("Processor", "Memory", "Disk", "Network", "Sessions", "Attempts that run"):
        assert f"<span>{title}</span>" in text
    assert ask(url, "/nodes/none").status == 404
