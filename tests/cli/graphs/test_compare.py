"""``dropflow diff`` and ``explain --origin`` of runs and sessions."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from dropflow import Graph, InputPath, OutputPath, app
from dropflow.cli.understand.prov import write_prov
from dropflow.graph.codec import load
from dropflow.graph.templates import ORDER_PORT, Kind
from dropflow.web.report import session_report
from managers.manager_server import Service
from tests.cli.answers import Command
from tests.fake_manager import FakeManager
from tests.regular_graphs import fan
from tests.times.made_times import sections_of

_EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.slow
def test_two_runs_are_compared(command: Command, tmp_path: Path) -> None:
    """A parameter that was changed is shown with both values, and times with their ratio."""
    for name, value in (("a", "World"), ("b", "Moon")):
        run = (
            _EXAMPLES / "hello.graph",
            "--keep",
            tmp_path / name,
            "--runner",
            "inline",
            "--set",
            f"Greet.greet={value}",
        )
        command("run", *run)
    answer = command("diff", tmp_path / "a", tmp_path / "b")

    assert answer.status == 1
    assert "The graphs differ: 1 difference." in answer.text
    assert re.search("Greet +greet +World +Moon", answer.text)
    assert re.search(r"attempts, running in all .* x \d", answer.text)


@pytest.mark.slow
def test_two_sessions_are_compared(ask: Command) -> None:
    """The answer as JSON has the whole comparison, and whether the graphs are the same."""
    answer = ask("diff", "failed", "finished", "--output", "json")

    assert answer.json["same_graph"] is True
    (gone,) = answer.json["comparison"]["failures"]["rows"]
    assert (gone["left"], gone["right"]) == (4, None), "causes that differ in a number are one"
    assert "Failures by root cause:" in ask("diff", "failed", "finished").text


@pytest.mark.slow
def test_a_run_is_compared_with_a_session(ask: Command, tmp_path: Path) -> None:
    """A path is a directory even if a manager is named; a file of a graph is neither."""
    ask("run", _EXAMPLES / "hello.graph", "--keep", tmp_path / "run", "--runner", "inline")
    answer = ask("diff", tmp_path / "run", "finished", "--output", "json")

    mixed = ask("diff", _EXAMPLES / "hello.graph", "finished")

    assert (answer.status, answer.json["same_graph"]) == (1, False)
    assert (mixed.status, "finished is not a file" in mixed.err) == (2, True)
    assert [answer.json["comparison"][one]["session"] for one in ("first", "second")] == ["run", "finished"]


@pytest.mark.slow
def test_the_other_session_may_be_on_another_manager(
    ask: Command, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token without an address is not sent to the manager of the other session."""
    assert ask("diff", "failed", "failed", "--other-to", service.url).status == 0
    monkeypatch.delenv("DROPFLOW_URL")
    answer = ask("diff", f"{_EXAMPLES}/none", "failed", "--other-to", service.url)
    assert "there is no such directory" in answer.err


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["log {}", "times {}", "explain {} Greeting", "diff {} finished"])
def test_a_directory_of_a_run_comes_before_a_session_of_the_environment(
    ask: Command, service: Service, typed: str
) -> None:
    """All commands take the directory of that name, as resume and retry do; with --to they take the session."""
    assert ask("run", _EXAMPLES / "hello.graph", "--keep", "here", "--runner", "inline").status == 0
    words = typed.format("here").split()

    assert ask(*words).status in (0, 1)
    refused = ask(*words, "--to", service.url)
    assert (refused.status, "here" in refused.err) == (2, True)


@pytest.mark.slow
def test_unknown_sessions_are_refused(ask: Command) -> None:
    """The error names the session."""
    answer = ask("diff", "failed", "none")
    assert (answer.status, "none" in answer.err) == (2, True)


@pytest.mark.slow
def test_a_run_has_a_signature(command: Command, tmp_path: Path) -> None:
    """Two runs of one graph are the same at all levels; another value changes the parameters and the contents."""
    for name, value in (("a", "World"), ("b", "World"), ("c", "Moon")):
        keep = ("--keep", tmp_path / name, "--runner", "inline", "--set", f"Greet.greet={value}")
        command("run", _EXAMPLES / "hello.graph", *keep)
    one, two, other = (
        command("explain", tmp_path / name, "--origin", "--output", "json").json["signature"]
        for name in ("a", "b", "c")
    )

    assert one == two
    assert {level for level in one if one[level] != other[level]} == {"parameters", "contents", "modes"}
    assert one["software"].keys() == {"dropflow", "Python"}
    answer = command("diff", tmp_path / "a", tmp_path / "c").text
    assert "graph: same" in answer
    assert "contents: different" in answer
    assert "same in DALiuGE's modes RERUN\n" in answer


@pytest.mark.slow
def test_a_drop_of_a_session_has_an_origin(ask: Command) -> None:
    """Its logical nodes and a page of its drops; a drop that is unknown is refused."""
    answer = ask("explain", "finished", "data 0", "--origin", "--limit", "2")

    assert answer.status == 0
    assert "upstream of it: 2 drops; roots: 1" in answer.text
    assert "drops 1 to 2 of 3:" in answer.text
    assert "no drop 'none'" in ask("explain", "finished", "none", "--origin").err


@pytest.mark.slow
def test_a_run_is_described_for_archives(command: Command, examples: Path, tmp_path: Path) -> None:
    """Another program reads the crate: the run, its graph, its parameters, and its results with their digests."""
    crates = pytest.importorskip("rocrate.rocrate")
    run = tmp_path / "run"
    command("run", examples / "estimate-pi.graph", "--keep", run, "--runner", "inline")
    answer = command(
        "explain", run, "--crate", run, "--license", "https://spdx.org/licenses/CC0-1.0", "--output", "json"
    )
    crate = crates.ROCrate(run)
    action, results = crate.get("#run"), [entity for entity in crate.data_entities if entity.get("sha256")]

    assert answer.status == 0
    assert action["instrument"] is crate.mainEntity
    assert action["actionStatus"] == "http://schema.org/CompletedActionStatus"
    assert len(results) == answer.json["results"] > 0
    for result in results:
        assert hashlib.sha256((run / result.id).read_bytes()).hexdigest() == result["sha256"]
    assert {one.type for one in action["object"]} >= {"PropertyValue"}


@pytest.mark.exhaustive
def test_runcrate_reports_the_run_of_a_crate(command: Command, examples: Path, tmp_path: Path) -> None:
    """A program of the authors of the profile finds the run, its graph, its parameters and its results."""
    runcrate = pytest.importorskip("runcrate.cli", reason="runcrate is absent: make exhaustive installs it")
    run = tmp_path / "run"
    command("run", examples / "estimate-pi.graph", "--keep", run, "--runner", "inline")
    assert command("explain", run, "--crate", run, "--license", "https://spdx.org/licenses/CC0-1.0").status == 0
    done = CliRunner().invoke(runcrate.cli, ["report", str(run)])

    assert done.exit_code == 0, done.output
    assert "action: #run" in done.output
    assert "instrument: graph.dfg" in done.output
    assert "20000" in done.output.partition("inputs:")[2]
    assert "files/pi.txt" in done.output.partition("outputs:")[2]


# The validator asks for the context of RO-Crate 1.1. The library has only that of 1.3, where types of Bioschemas have
# other addresses. Tests are without network, so that this goes into the cache that the validator reads offline.
_FILL_CACHE = """
import io, pathlib, sys
from requests.adapters import HTTPAdapter
from requests_cache import CachedSession
from urllib3 import HTTPResponse

class Context(HTTPAdapter):
    def send(self, request, **_):
        text = pathlib.Path(sys.argv[1]).read_text().replace("bioschemas.org/terms/", "bioschemas.org/")
        headers = {"Content-Type": "application/ld+json"}
        found = HTTPResponse(io.BytesIO(text.encode()), headers, 200, preload_content=False)
        return self.build_response(request, found)

with CachedSession(sys.argv[2]) as session:
    session.mount("https://", Context())
    session.get("https://w3id.org/ro/crate/1.1/context")
"""


@pytest.mark.exhaustive
def test_a_validator_of_crates_finds_all_that_is_required(command: Command, examples: Path, tmp_path: Path) -> None:
    """Of a run that is computed, of one that is reused, and of one that failed in part."""
    library = pytest.importorskip("rocrate.rocrate")
    tools = Path(sys.prefix) / "validator" / "bin"
    if not (tools / "rocrate-validator").exists():
        pytest.skip("rocrate-validator is absent: make exhaustive installs it")
    context = Path(library.__file__).parent / "data" / "ro-crate.jsonld"
    cache = tmp_path / "cache"
    subprocess.run([tools / "python", "-c", _FILL_CACHE, context, cache], check=True)
    store = ("--reuse", "--store", tmp_path / "store")
    for name, graph, options in (
        ("computed", "estimate-pi.graph", store),
        ("reused", "estimate-pi.graph", store),
        ("partial", "error-threshold.graph", ()),
    ):
        run = tmp_path / name
        command("run", examples / graph, "--keep", run, "--runner", "inline", *options)
        assert command("explain", run, "--crate", run, "--license", "https://spdx.org/licenses/CC0-1.0").status == 0
        words = ("validate", "--offline", "--cache-path", cache, "--verbose", "--no-paging", run)
        done = subprocess.run([tools / "rocrate-validator", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
        assert "is a valid workflow-run-crate-0.5" in done.stdout


@pytest.mark.slow
def test_a_crate_tells_where_reused_results_come_from(command: Command, examples: Path, tmp_path: Path) -> None:
    """Each result has the session and host that computed it, if it was another one."""
    pytest.importorskip("rocrate.rocrate")
    found = []
    for name in ("first", "second"):
        run = tmp_path / name
        command(
            *("run", examples / "estimate-pi.graph", "--keep", run, "--runner", "inline"),
            *("--reuse", "--store", tmp_path / "store"),
        )
        assert command("explain", run, "--crate", run).status == 0
        graph = json.loads((run / "ro-crate-metadata.json").read_text())["@graph"]
        (result,) = (one for one in graph if "sha256" in one and one["@id"].startswith("files/"))
        found.append(result.get("description", ""))
    assert found[0] == ""
    assert found[1].startswith("reused: from session first on ")


@pytest.mark.slow
def test_the_provenance_names_the_last_attempt_of_a_drop(tmp_path: Path) -> None:
    """One that ran on a node that was lost, and then on another one, was made by the other one."""
    pytest.importorskip("prov.model")
    graph = fan(2)
    app = int(np.flatnonzero(graph.kinds[graph.template] == Kind.APP)[0])
    manager = FakeManager(nodes=("n0", "n1"), role="island")
    manager.add(graph, "s")
    manager.complete("s")
    again, lost = {"drop": app, "ready": 900.0, "ran": 1.0}, {"drop": app, "attempt": 2, "ready": 5.0}
    manager.set_times("s", sections_of([[again], [lost]]))
    write_prov(session_report(manager, "s", has_results=True, has_states=True), tmp_path / "prov.json", {})
    document = json.loads((tmp_path / "prov.json").read_text())

    (agent,) = (one["prov:agent"] for one in document["wasAssociatedWith"].values())
    assert document["agent"][agent]["prov:label"] == "n0"
    assert document["activity"][f"run:drop-{app}"]["prov:startTime"].startswith("1970-01-01T00:15:00")


def test_a_crate_has_the_provenance_of_every_drop(command: Command, examples: Path, tmp_path: Path) -> None:
    """A library of PROV reads who used and made what: failed applications made nothing, all others their data."""
    pytest.importorskip("rocrate.rocrate")
    library = pytest.importorskip("prov.model")
    run = tmp_path / "run"
    command("run", examples / "error-threshold.graph", "--keep", run, "--runner", "inline")
    assert command("explain", run, "--crate", run).status == 0
    document = library.ProvDocument.deserialize(str(run / "provenance.json"), format="json")

    def of(kind: Any) -> list[dict[str, str]]:
        found = document.get_records(kind)
        return [{name.localpart: str(value) for name, value in one.attributes} for one in found]

    graph = load(run / "graph.dfg")
    links = [graph.links[link] for link in graph.successors.link]
    sources = np.repeat(np.arange(graph.drops), np.diff(graph.successors.ptr))
    is_app = graph.kinds[graph.template] == Kind.APP
    ends = zip(sources, graph.successors.neighbour, links, strict=True)
    edges = {(f"run:drop-{one}", f"run:drop-{two}") for one, two, link in ends if link.source_port != ORDER_PORT}
    failed = {str(record.identifier) for record in document.get_records(library.ProvActivity) if "ERROR" in str(record)}
    lost = {two for one, two in edges if one in failed}
    assert lost

    assert len(of(library.ProvActivity)) == int(is_app.sum())
    assert len(of(library.ProvEntity)) == int((~is_app).sum()) - len(lost)
    made = {(one["activity"], one["entity"]) for one in of(library.ProvGeneration)}
    used = {(one["entity"], one["activity"]) for one in of(library.ProvUsage)}
    assert made | used == {edge for edge in edges if not lost & set(edge)}
    assert all(one["startTime"] <= one["endTime"] for one in of(library.ProvActivity))


@pytest.mark.slow
def test_a_crate_is_signed_with_the_cluster_key(command: Command, examples: Path, tmp_path: Path) -> None:
    """Files that are changed, removed or added are named; another key or a forged signature is refused."""
    pytest.importorskip("rocrate.rocrate")
    run, key, other = tmp_path / "run", tmp_path / "cluster.key", tmp_path / "other.key"
    command("run", examples / "estimate-pi.graph", "--keep", run, "--runner", "inline")
    for one in (key, other):
        assert command("keys", "create", "--key", one).status == 0
    check = ("keys", "verify", run, "--output", "json", "--key")

    def refused(key: Path) -> str:
        answer = command("keys", "verify", run, "--key", key)
        assert (answer.status, "Traceback" in answer.err) == (2, False)
        return answer.err

    assert "not signed" in refused(key)
    signed = command("explain", run, "--crate", run, "--sign", "--key", key, "--output", "json").json["signed"]
    answer = command(*check, key)
    assert (answer.status, answer.json["files"], answer.json["differences"]) == (0, signed, [])
    assert "signed with cluster key" in refused(other)

    (result,) = (run / "files").iterdir()
    content = result.read_bytes()
    result.write_bytes(content + b"0")
    answer = command(*check, key)
    assert (answer.status, answer.json["differences"]) == (1, ["files/pi.txt was changed"])
    result.unlink()
    assert command(*check, key).json["differences"] == ["files/pi.txt is not there"]
    digest = hashlib.sha256(content + b"0").hexdigest()
    result.write_bytes(content + b"0")
    signature = run / "ro-crate-metadata.json.sig"
    signature.write_text(signature.read_text().replace(hashlib.sha256(content).hexdigest(), digest))
    assert "the signature does not match" in refused(key)
    signature.write_text("{")
    assert "not a signature of a crate" in refused(key)


@pytest.mark.slow
def test_results_that_are_not_there_are_not_described(command: Command, examples: Path, tmp_path: Path) -> None:
    """They are named, and the exit status is 1; a directory that is not there is refused."""
    pytest.importorskip("rocrate.rocrate")
    run, here = tmp_path / "run", tmp_path / "here"
    here.mkdir()
    command("run", examples / "estimate-pi.graph", "--keep", run, "--runner", "inline")
    answer = command("explain", run, "--crate", here)

    assert answer.status == 1
    assert "not in that directory" in answer.text
    assert (here / "graph.dfg").exists()
    assert command("explain", run, "--crate", tmp_path / "nowhere").status == 2


@app
def table() -> str:
    """Return a text."""
    return "name,flux\na,123"


@app
def spectrum(text: str, scale: int, array: OutputPath) -> None:
    """Write three numbers as an array of numpy."""
    with Path(array).open("wb") as stream:
        np.save(stream, np.array([1.0, 2.0, len(text)]) * [1, 1, scale])


@app
def report(values: InputPath) -> str:
    """Return their sum."""
    return str(np.load(values).sum())


@pytest.mark.slow
def test_the_first_contents_that_diverge_are_found(command: Command, tmp_path: Path) -> None:
    """Not those that follow from them; with the parameter upstream, and the largest difference of numbers."""
    for name, scale in (("a", 2), ("b", 3)):
        with Graph("diverging") as graph:
            report(spectrum(table(), scale)).save("report.txt")
        graph.run(directory=tmp_path / name, runner="inline")
    answer = command("diff", tmp_path / "a", tmp_path / "b", "--output", "json")
    (found,) = answer.json["divergences"]

    assert found["drop"].startswith("Spectrum")
    assert found["how"][0] == "1 number of 3 differs (0.333 of all)"
    assert found["how"][1] == "largest difference 15 at [2]: 30.0 / 45.0"
    assert [(one["subject"], one["what"], one["left"], one["right"]) for one in found["upstream"]] == [
        ("Spectrum", "scale", "2", "3")
    ]
    text = command("diff", tmp_path / "a", tmp_path / "b").text
    assert "largest difference 15 at [2]" in text
