"""The metrics for Prometheus."""

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from dropflow.api.auth import AccessRules
from dropflow.testing.fake_manager import FakeManager, manager_with_sessions
from dropflow.testing.faults import ask, serve
from managers.routes.metrics import metrics_routes

_DASHBOARD = Path(__file__).resolve().parents[3] / "examples" / "grafana.json"


def _samples(manager: FakeManager) -> dict[tuple[str, str], float]:
    """Return the value of each sample, by its name and the values of its labels."""
    with serve(metrics_routes(manager)) as server:
        text = ask(server.url, "GET", "/metrics").body.decode()
    families = text_string_to_metric_families(text)
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_sessions_drops_and_nodes_are_counted() -> None:
    """They are counted by status and state. States without members are 0, so that the series are always the same."""
    found = _samples(manager_with_sessions(nodes=("n1", "n2")))

    assert found["dropflow_sessions", "running"] == found["dropflow_sessions", "failed"] == 1
    assert found["dropflow_sessions", "deploying"] == 0
    assert found["dropflow_drops", "error"] == 4
    assert found["dropflow_attempts_running", ""] == 2
    assert (found["dropflow_nodes", "alive"], found["dropflow_nodes", "lost"]) == (2, 0)
    assert found["dropflow_node_processor_ratio", "n1"] == 0.375
    # Two nodes on one host share its processors.
    assert [value for (name, _), value in found.items() if name == "dropflow_host_cores"] == [2]


def test_a_scrape_shows_the_present_state() -> None:
    """Nothing is kept between scrapes or shared between managers."""
    manager = manager_with_sessions()
    before = _samples(manager)["dropflow_drops", "completed"]
    manager.advance("running", {8: "COMPLETED"})

    assert _samples(manager)["dropflow_drops", "completed"] == before + 1
    assert _samples(FakeManager())["dropflow_drops", "completed"] == 0


def test_names_are_escaped() -> None:
    """The name of a node cannot add lines."""
    found = _samples(FakeManager(nodes=('n"\n1',)))

    assert ("dropflow_node_cores", 'n"\n1') in found


def test_metrics_need_the_token() -> None:
    """They contain the names of nodes."""
    with serve(metrics_routes(manager_with_sessions()), access=AccessRules(token="t")) as server:  # noqa: S106 - a token of the tests
        assert ask(server.url, "GET", "/metrics").status == 401
        assert ask(server.url, "GET", "/metrics", headers={"Authorization": "Bearer t"}).status == 200


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    """Each expression of the Grafana dashboard names metrics, labels and values of labels that `/metrics` has."""
    with serve(metrics_routes(manager_with_sessions(nodes=("n1",)))) as server:
        text = ask(server.url, "GET", "/metrics").body.decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    labels = {sample.name: {*sample.labels} for sample in samples}
    values = {(sample.name, *pair) for sample in samples for pair in sample.labels.items()}
    panels = json.loads(_DASHBOARD.read_text(encoding="utf-8"))["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    selectors = [found for expression in asked for found in re.findall(r"(dropflow_\w+)\{([^}]*)\}", expression)]

    assert {name for name, _ in selectors} <= set(labels)
    for name, rules in selectors:
        for label, wanted in re.findall(r'(\w+)=~?"([^"$]+)"', rules):
            assert {(name, label, value) for value in wanted.split("|")} <= values
    for expression in asked:
        for label in re.findall(r"by \((\w+)\)", expression):
            assert all(label in labels[name] for name in re.findall(r"dropflow_\w+", expression))
