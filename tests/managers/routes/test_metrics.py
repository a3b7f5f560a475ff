"""What Prometheus is told."""

from prometheus_client.parser import text_string_to_metric_families

from dropflow.rest.auth import AccessRules
from dropflow.testing.fake_manager import FakeManager, manager_with_sessions
from dropflow.testing.serving import ask, serve
from managers.routes.metrics import metrics_routes


def _samples(manager: FakeManager) -> dict[tuple[str, str], float]:
    """Value of each sample, by its name and the values of its labels."""
    with serve(metrics_routes(manager)) as server:
        text = ask(server.url, "GET", "/metrics").body.decode()
    families = text_string_to_metric_families(text)
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_sessions_drops_and_nodes_are_counted() -> None:
    """By status and state, those that do not occur too, so that no series comes and goes."""
    found = _samples(manager_with_sessions(nodes=("n1", "n2")))

    assert found["dropflow_sessions", "running"] == found["dropflow_sessions", "failed"] == 1
    assert found["dropflow_sessions", "deploying"] == 0
    assert found["dropflow_drops", "error"] == 4
    assert found["dropflow_attempts_running", ""] == 2
    assert (found["dropflow_nodes", "alive"], found["dropflow_nodes", "lost"]) == (2, 0)
    assert found["dropflow_node_processor_ratio", "n1"] == 0.375


def test_a_scrape_tells_what_is_now() -> None:
    """Nothing is remembered from one scrape to the next, or from one manager to another."""
    manager = manager_with_sessions()
    before = _samples(manager)["dropflow_drops", "completed"]
    manager.advance("running", {8: "COMPLETED"})

    assert _samples(manager)["dropflow_drops", "completed"] == before + 1
    assert _samples(FakeManager())["dropflow_drops", "completed"] == 0


def test_names_are_escaped() -> None:
    """A node's name cannot add lines of its own."""
    found = _samples(FakeManager(nodes=('n"\n1',)))

    assert ("dropflow_node_cores", 'n"\n1') in found


def test_metrics_need_the_token() -> None:
    """They tell names of nodes."""
    with serve(metrics_routes(manager_with_sessions()), access=AccessRules(token="t")) as server:  # noqa: S106 - guards nothing
        assert ask(server.url, "GET", "/metrics").status == 401
        assert ask(server.url, "GET", "/metrics", headers={"Authorization": "Bearer t"}).status == 200
