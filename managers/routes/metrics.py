"""``/metrics`` for Prometheus: nodes and sessions of a manager.

The values are read from the manager at each scrape. An island or master reports the sums over its nodes, so scrape
either the nodes or the manager above them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dropflow.api.manager import Manager
from dropflow.api.node_records import cores_of_hosts
from dropflow.api.routes import Request, Response, Route
from dropflow.graph.drop_counts import DropCounts, add_counts
from dropflow.states import STATUSES, DropState

_LOADS = (
    ("dropflow_node_cores", "Processors that a node may use.", "cores", 1.0),
    ("dropflow_node_workers", "Worker processes of a node.", "workers", 1.0),
    ("dropflow_node_busy", "Attempts that run in workers or threads of a node now.", "busy", 1.0),
    ("dropflow_node_processor_ratio", "Use of all processors of a node, 0 to 1.", "processor", 0.01),
    ("dropflow_node_memory_bytes", "Main memory of a node.", "memory", 1.0),
    ("dropflow_node_memory_free_bytes", "Main memory of a node that is available.", "memory_free", 1.0),
    ("dropflow_node_disk_bytes", "File system of a node's sessions.", "disk", 1.0),
    ("dropflow_node_received_bytes_total", "Contents that a node fetched from other nodes.", "received", 1.0),
    ("dropflow_node_disk_free_bytes", "Free space of the file system of a node's sessions.", "disk_free", 1.0),
)


def metrics_routes(manager: Manager) -> list[Route]:
    """Return the route ``/metrics`` of a manager."""

    def metrics(_: Request) -> Response:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Manager(manager))
        return Response(body=generate_latest(registry), content_type=CONTENT_TYPE_LATEST)

    return [
        Route(
            method="GET",
            path="/metrics",
            handler=metrics,
            summary="Measurements for Prometheus",
            gives="text/plain",
            tag="about",
        )
    ]


class _Manager(Collector):
    """Collects the metrics of a manager at one time."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def collect(self) -> Iterator[Metric]:
        """Yield all families of metrics, each with a value for every state, so that no series appears or disappears."""
        info, sessions, nodes = self._manager.info(), self._manager.sessions(), self._manager.nodes()
        about = GaugeMetricFamily("dropflow_info", "The manager.", labels=["name", "role", "version"])
        about.add_metric([info.name, info.role, info.version], 1)
        yield about
        yield GaugeMetricFamily("dropflow_start_time_seconds", "When it started, since the epoch.", info.started)
        yield _counted(
            "dropflow_sessions",
            "Sessions by status.",
            "status",
            Counter(session.status for session in sessions),
            STATUSES,
        )
        drops: Counter[str] = Counter()
        for session in sessions:
            drops.update(session.states)
        yield _counted("dropflow_drops", "Drops of all sessions by state.", "state", drops, DropState.__members__)
        counts = add_counts(session.counts for session in sessions)
        yield _counted(
            "dropflow_drops_counted",
            "Drops of all sessions by outcome, as pages and commands count them; they add up.",
            "kind",
            Counter(msgspec.structs.asdict(counts)),
            DropCounts.__struct_fields__,
        )
        running = float(sum(session.running for session in sessions))
        rate = sum(session.rate for session in sessions if session.status == "RUNNING")
        yield GaugeMetricFamily("dropflow_attempts_running", "Attempts that run in a worker.", running)
        waiting = (
            ("queued", "Attempts that wait for a worker.", sum(session.queued for session in sessions)),
            (
                "ready",
                "Attempts that wait for room in the queue of the workers.",
                sum(session.ready for session in sessions),
            ),
        )
        for name, text, number in waiting:
            yield GaugeMetricFamily(f"dropflow_attempts_{name}", text, float(number))
        again = float(sum(session.recomputed for session in sessions))
        text = "Drops that ran again although they had completed, because contents were lost."
        yield GaugeMetricFamily("dropflow_drops_recomputed", text, again)
        yield GaugeMetricFamily("dropflow_settled_per_second", "Drops settled per second, recently.", rate)
        states: Counter[str] = Counter(node.state for node in nodes)
        yield _counted(
            "dropflow_nodes",
            "Node managers by state.",
            "state",
            states,
            ("alive", "draining", "drained", "suspect", "lost"),
        )
        text = "Processors of a host that its nodes may use; nodes on one host share them."
        hosts = GaugeMetricFamily("dropflow_host_cores", text, labels=["host"])
        for host, cores in cores_of_hosts(nodes).items():
            hosts.add_metric([host], float(cores))
        yield hosts
        for name, text, field, scale in _LOADS:
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(name, text, labels=["node"])
            for node in nodes:
                family.add_metric([node.name], getattr(node.load, field) * scale)
            yield family


def _counted(name: str, text: str, label: str, counts: Counter[str], values: Iterable[str]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value in values:
        family.add_metric([value.lower()], counts[value])
    return family
