"""The small applications: generic ones, branches, functions, and those that use the network."""

import contextlib
import http.server
import pickle
import socket
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dropflow.apps.functions import function
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.tasks import Output, Task
from dropflow.graph.templates import Argument, Kind, Link, Template
from dropflow.runners.executor import LocalExecutor
from dropflow.testing.attempts import FAILED, SKIPPED, Attempted, Given, Wanted, try_app

SIMPLE = "dlg.apps.simple."
DIRECTORY = "dlg.data.drops.directory.DirectoryDROP"


@pytest.mark.parametrize("name", ["CopyApp", "GenericGatherApp", "SleepAndCopyApp"])
def test_inputs_are_joined_byte_for_byte(tmp_path: Path, name: str) -> None:
    """Every output gets all inputs, in order, for any size of blocks."""
    inputs = [Given("a", b"\x00one"), Given("b", b"two\xff")]

    got = try_app(SIMPLE + name, tmp_path, inputs=inputs, outputs=["x", "y"], fields={"bufsize": 2})

    assert got.contents == [b"\x00onetwo\xff"] * 2


def test_a_copy_of_text_is_marked_as_text(tmp_path: Path) -> None:
    """The copy of a text content is marked as text."""
    got = try_app(f"{SIMPLE}CopyApp", tmp_path, inputs=[Given("a", "wörds")], outputs=["x"])

    assert got.contents == ["wörds".encode()]
    assert got.handles[0] is not None
    assert got.handles[0].text


def test_directories_are_copied_with_all_they_contain(tmp_path: Path) -> None:
    """Directories are merged into a directory, and a file among them keeps its name."""
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / name).write_text(name)
    (tmp_path / "file").write_text("f")
    inputs = [Given("a", tmp_path / "one"), Given("a", tmp_path / "two"), Given("a", tmp_path / "file")]

    got = try_app(f"{SIMPLE}CopyApp", tmp_path / "s", inputs=inputs, outputs=[Wanted("x", component=DIRECTORY)])

    assert got.result.failure is None
    assert got.handles[0] is not None
    made = Path(got.handles[0].location)
    assert sorted(path.relative_to(made).as_posix() for path in made.rglob("*")) == [
        "file",
        "sub",
        "sub/one",
        "sub/two",
    ]


def test_a_directory_cannot_become_a_file(tmp_path: Path) -> None:
    """The failure names both ends."""
    got = try_app(
        f"{SIMPLE}CopyApp", tmp_path, inputs=[Given("a", tmp_path, name="folder")], outputs=[Wanted("x", "memory")]
    )

    assert "'folder' is a directory and output 'memory' is not" in got.failure.text


@pytest.mark.parametrize("name", ["CopyApp", "GenericGatherApp", "ArrayGatherApp", "DictGatherApp"])
def test_missing_inputs_are_logged(tmp_path: Path, name: str) -> None:
    """An application that runs without some inputs logs their names and number."""
    inputs = [Given("a", 1), Given("a", FAILED, name="broken"), Given("a", 2), Given("a", 3)]

    got = try_app(SIMPLE + name, tmp_path, inputs=inputs, outputs=["x"])

    assert got.result.failure is None
    assert "1 of 4 inputs failed; working without broken" in got.log


def test_an_application_without_any_content_fails(tmp_path: Path) -> None:
    """If no input has content, the attempt fails."""
    got = try_app(f"{SIMPLE}CopyApp", tmp_path, inputs=[Given("a", FAILED)] * 2, outputs=["x"])

    assert "no input has content: 2 of 2 inputs failed" in got.failure.text


def test_a_list_has_all_values_of_its_inputs(tmp_path: Path) -> None:
    """Values that several producers wrote into one drop are collected like values in drops of their own."""
    joined = b"".join(pickle.dumps(value, protocol=5) for value in (1, [2], None))
    got = try_app(f"{SIMPLE}ArrayGatherApp", tmp_path, inputs=[Given("a", joined), Given("a", 4)], outputs=["x"])

    assert got.values == [[1, [2], None, 4]]


def test_a_scatter_of_several_inputs_at_one_port_is_refused(tmp_path: Path) -> None:
    """Only one can be split, and the others would be lost."""
    inputs = [Given("a", [1, 2]), Given("a", [3, 4])]
    got = try_app(f"{SIMPLE}GenericScatterApp", tmp_path, inputs=inputs, outputs=["x", "x"])

    assert got.failure.text == "2 inputs come in at port 'a', and one can be split"


def test_failed_and_skipped_inputs_are_counted_separately(tmp_path: Path) -> None:
    """A skipped input is not called a failed one, neither in a failure nor in the log."""
    lost = [Given("a", FAILED, name="broken"), Given("a", SKIPPED, name="left out")]
    nothing = try_app(f"{SIMPLE}ArrayGatherApp", tmp_path, inputs=lost, outputs=["x"])
    something = try_app(f"{SIMPLE}ArrayGatherApp", tmp_path, inputs=[*lost, lost[1], Given("a", 1)], outputs=["x"])

    assert nothing.failure.text == "no input has content: 1 of 2 inputs failed, 1 was skipped"
    assert "1 of 4 inputs failed, 2 were skipped; working without broken, left out, left out" in something.log


def test_null_barrier_leaves_its_outputs_empty(tmp_path: Path) -> None:
    """NullBarrierApp leaves its outputs empty."""
    got = try_app(f"{SIMPLE}NullBarrierApp", tmp_path, inputs=[Given("a", 1)], outputs=["x"])

    assert got.contents == [b""]


@pytest.mark.parametrize("content", [0.001, "0.001", "words", b"\xff", [1], float("nan"), float("inf"), -1])
def test_sleep_time_may_come_from_a_port(tmp_path: Path, content: Any) -> None:
    """Data at the port are seconds, also as text; other data are ignored with a warning in the log."""
    got = try_app(
        f"{SIMPLE}SleepApp", tmp_path, inputs=[Given("sleep_time", content)], outputs=["x"], fields={"sleep_time": 60.0}
    )

    assert got.contents == [b""]
    assert ("not sleeping" in got.log) is (content not in (0.001, "0.001"))


def test_a_negative_sleep_is_refused(tmp_path: Path) -> None:
    """A field that is not a time is an error."""
    assert "at least 0" in try_app(f"{SIMPLE}SleepApp", tmp_path, fields={"sleepTime": -1}).failure.text


@pytest.mark.parametrize(
    ("content", "greeting"),
    [("you", "Hello, you"), (["a", "b"], "Hello, a"), (b"raw", "Hello, raw"), (7, "Hello, 7"), ([], "Hello, []")],
)
def test_the_greeting_has_the_name_from_input_or_field(tmp_path: Path, content: Any, greeting: str) -> None:
    """The name in the greeting is the input, the first element of a list, or the field."""
    app = f"{SIMPLE}HelloWorldApp"

    assert try_app(app, tmp_path, inputs=[Given("x", content)], outputs=["o"]).contents == [greeting.encode()]
    assert try_app(app, tmp_path, outputs=["o", "p"], fields={"greet": "you"}).contents == [b"Hello you"] * 2


def test_several_inputs_of_a_greeting_are_an_error(tmp_path: Path) -> None:
    """The hello application accepts one input only."""
    got = try_app(f"{SIMPLE}HelloWorldApp", tmp_path, inputs=[Given("x", 1), Given("x", 2)])

    assert "2 inputs are connected" in got.failure.text


def test_crc_writes_the_checksum_as_decimal_text(tmp_path: Path) -> None:
    """The output is the CRC-32 of the input as a decimal number."""
    content = bytes(range(256)) * 50

    got = try_app("dlg.apps.crc.CRCApp", tmp_path, inputs=[Given("d", content)], outputs=["c"])

    assert got.contents == [str(zlib.crc32(content)).encode()]
    assert "exactly one" in try_app("dlg.apps.crc.CRCApp", tmp_path).failure.text


def test_a_group_is_a_list_of_its_members(tmp_path: Path) -> None:
    """GroupByApp collects decoded values in order."""
    inputs = [Given("m", [1]), Given("m", "text"), Given("m", b"\xff raw")]

    got = try_app("dropflow.apps.GroupByApp", tmp_path, inputs=inputs, outputs=["g"])

    assert got.values == [[[1], "text", b"\xff raw"]]


def test_gathers_make_lists_or_dictionaries(tmp_path: Path) -> None:
    """ArrayGatherApp makes a list, DictGatherApp a dictionary by names, numbered where they repeat."""
    inputs = [Given("v", 1, name="a"), Given("v", 2, name="b"), Given("v", 3, name="a")]
    fields = (
        Argument(name="value_dict", value='{"z": 0}', type="Json"),
        Argument(name="y", value=5, parameter_type="ApplicationArgument"),
    )

    listed = try_app(f"{SIMPLE}ArrayGatherApp", tmp_path, inputs=inputs, outputs=["o", "p"])
    named = try_app(f"{SIMPLE}DictGatherApp", tmp_path, inputs=inputs, outputs=["o"], fields=fields)

    assert listed.values == [[1, 2, 3]] * 2
    assert named.values == [{"z": 0, "y": 5, "a-0": 1, "b": 2, "a-1": 3}]


def test_a_number_in_a_dictionary_is_not_the_name_of_another_input(tmp_path: Path) -> None:
    """No input is lost because a node has the name that a number would make."""
    inputs = [Given("v", 1, name="a-0"), Given("v", 2, name="a"), Given("v", 3, name="a")]
    named = try_app(f"{SIMPLE}DictGatherApp", tmp_path, inputs=inputs, outputs=["o"])

    assert named.values == [{"a-0": 1, "a-1": 2, "a-2": 3}]


def test_list_append_makes_a_list_of_the_given_length(tmp_path: Path) -> None:
    """ListAppendThrashingApp ends with a list of the given length."""
    got = try_app(f"{SIMPLE}ListAppendThrashingApp", tmp_path, outputs=["o"], fields={"size": 5})

    assert got.values == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("data", "first", "rest"),
    [([3, 4, 5], 3, [4, 5]), ([7], 7, []), ([], None, []), (None, None, []), (5, 5, []), ("ab", "ab", [])],
)
def test_pick_one_writes_the_first_element_and_the_rest(tmp_path: Path, data: Any, first: Any, rest: Any) -> None:
    """The first element is written to the outputs, the rest to the one called rest_array, by port or by drop."""
    outputs = ["element", "rest_array", Wanted("other", name="rest_array")]

    got = try_app(f"{SIMPLE}PickOne", tmp_path, inputs=[Given("rest_array", data)], outputs=outputs)

    assert got.values == [first, rest, rest]


def test_pick_one_ignores_event_inputs(tmp_path: Path) -> None:
    """Of several inputs the array is the one at rest_array, and never an event."""
    event = Argument(name="go", type="Event", usage="InputPort")
    app = f"{SIMPLE}PickOne"

    assert try_app(
        app, tmp_path, inputs=[Given("go", 0), Given("x", [1, 2])], outputs=["e"], fields=(event,)
    ).values == [1]
    assert "no input has an array" in try_app(app, tmp_path, inputs=[Given("go", 0)], fields=(event,)).failure.text


# Branches.


BRANCH = "dlg.apps.simple.Branch"


def branch(
    directory: Path, code: str, *fields: Argument, inputs: Any = (), outputs: Any = ("true", "false")
) -> Attempted:
    """Run a Branch with this condition."""
    given = [Given(port, content) for port, content in inputs]
    arguments = (Argument(name="func_code", value=code), *fields)
    return try_app(BRANCH, directory, inputs=given, outputs=outputs, fields=arguments)


@pytest.mark.parametrize(("x", "taken"), [(5, 0), (-5, 1)])
def test_the_input_goes_to_one_output_and_the_other_is_skipped(tmp_path: Path, x: int, taken: int) -> None:
    """The input x arrives, byte for byte, at the output that the condition chooses."""
    got = branch(tmp_path, "def condition(x): return x > 0", inputs=[("x", x)])

    assert got.contents[taken] == pickle.dumps(x, protocol=5)
    assert got.contents[1 - taken] is None
    assert len(got.result.skipped) == 1


def test_numpy_truth_values_are_accepted(tmp_path: Path) -> None:
    """A condition may return a numpy boolean."""
    code = "import numpy as np\ndef condition(x): return np.mean(x) > 0.5"

    assert branch(tmp_path, code, inputs=[("x", [0, 0])]).contents[0] is None


def test_a_field_is_used_when_no_input_is_connected(tmp_path: Path) -> None:
    """Without an input, the condition gets the parameter x, whose value is also written to the output."""
    x = Argument(name="x", value="-1", type="Integer", parameter_type="ApplicationArgument")

    assert branch(tmp_path, "def condition(x=1): return x > 0", x).values == [None, -1]


def test_text_is_passed_on_as_text(tmp_path: Path) -> None:
    """A text drop that is passed on is still a text drop."""
    got = branch(tmp_path, "def condition(x): return True", inputs=[("x", "words")])

    assert got.handles[0] is not None
    assert got.handles[0].text


def test_the_condition_may_take_several_inputs(tmp_path: Path) -> None:
    """The condition may take more inputs than x; only x is passed on."""
    got = branch(tmp_path, "def condition(x, limit): return x < limit", inputs=[("limit", 3), ("x", 2)])

    assert got.values == [2, None]


def test_a_returned_text_selects_the_port_of_that_name(tmp_path: Path) -> None:
    """If the condition returns text, the output port of that name is chosen."""
    got = branch(tmp_path, "def condition(x): return 'mid'", inputs=[("x", 1)], outputs=["low", "mid", "high"])

    assert got.values == [None, 1, None]


def test_only_one_side_of_a_branch_needs_to_be_connected(tmp_path: Path) -> None:
    """If only the false side is connected and the condition is true, that side is skipped."""
    assert branch(tmp_path, "def condition(x): return 1", inputs=[("x", 1)], outputs=["false"]).contents == [None]


@pytest.mark.parametrize(
    ("answer", "outputs", "text"),
    [
        ("'maybe'", ["true", "false"], "'maybe', which is not an output port"),
        ("__import__('numpy').ones(2)", ["true", "false"], "neither true nor false"),
        ("True", ["a", "b", "c"], "which is true and which is false"),
    ],
)
def test_return_values_that_select_no_port_are_an_error(
    tmp_path: Path, answer: str, outputs: list[str], text: str
) -> None:
    """A return value that selects no output port is an error."""
    got = branch(tmp_path, f"def condition(): return {answer}", outputs=outputs)

    assert text in got.failure.text


@pytest.mark.parametrize(("result", "taken"), [("true", 0), ("False", 1), ("", 0)])
@pytest.mark.parametrize("ports", [("Y", "N"), ("true", "false"), ("left", "right")])
def test_the_older_branch_uses_a_constant(tmp_path: Path, result: str, taken: int, ports: tuple[str, str]) -> None:
    """SimpleBranch skips one of two outputs, by the names of their ports or by their order."""
    fields = (Argument(name="result", value=result, type="Boolean"),)

    got = try_app("dlg.apps.simple.SimpleBranch", tmp_path, outputs=ports, fields=fields)

    assert got.contents[taken] == b""
    assert got.contents[1 - taken] is None


@pytest.mark.parametrize(
    ("port", "result", "taken"), [("first", "true", True), ("second", "true", False), ("second", "0", True)]
)
def test_the_order_of_the_fields_distinguishes_the_outputs(tmp_path: Path, port: str, result: str, taken: bool) -> None:  # noqa: FBT001 - a result
    """With other port names, the first output port is true and the second is false, even if only one is connected."""
    fields = (
        Argument(name="result", value=result, type="Boolean"),
        Argument(name="first", usage="OutputPort"),
        Argument(name="second", usage="OutputPort"),
    )

    got = try_app("dlg.apps.simple.SimpleBranch", tmp_path, outputs=[port], fields=fields)

    assert got.contents == [b"" if taken else None]


# The small functions for Python function nodes.


def test_functions_return_what_their_names_promise(tmp_path: Path) -> None:
    """Lines, ranges, maxima and JSON."""
    (tmp_path / "lines").write_text("a\nb\n")

    assert function.readLines(str(tmp_path / "lines")) == ["a", "b"]
    assert function.createRange(4, 1) == [1, 2, 3]
    assert function.getMax([1, 3, 2]) == 3
    assert function.string2json('{"a": 1}') == {"a": 1}


@pytest.mark.parametrize("text", [None, "", " \n"])
def test_no_text_is_none(text: str | None) -> None:
    """Real graphs leave the text away: then the answer is None."""
    assert function.string2json(text) is None


def test_several_outputs_get_their_own(tmp_path: Path) -> None:
    """The function for many outputs gives each port its value."""
    fields = {"func_name": "dlg.apps.simple_functions.createMultiOut", "v1": 5}

    got = try_app(
        "dlg.apps.pyfunc.PyFuncApp", tmp_path, inputs=[Given("v2", 6)], outputs=["out1", "out2"], fields=fields
    )

    assert got.values == [5, 6]


# Applications that use the network, on this host only.


URL = "dlg.apps.simple.UrlRetrieveApp"
LISTENER = "dlg.apps.socket_listener.SocketListenerApp"
BODY = bytes(range(256)) * 20


class Site(http.server.BaseHTTPRequestHandler):
    """A web site of a few pages."""

    def do_GET(self) -> None:
        """Send the page, an error or a redirect."""
        if self.path == "/data":
            self.reply(200, BODY)
        elif self.path == "/cut":
            self.reply(200, BODY, length=len(BODY) * 2)
        elif self.path == "/moved":
            self.reply(302, b"", location="/data")
        elif self.path == "/to-a-file":
            self.reply(302, b"", location="file:///etc/hostname")
        else:
            self.reply(503 if self.path == "/busy" else 404, b"an error page")

    def reply(self, status: int, body: bytes, *, location: str = "", length: int = -1) -> None:
        """Send one answer."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length < 0 else length))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is given
        """Log nothing."""


@pytest.fixture
def site() -> Iterator[str]:
    """The address of a web site that is up during a test."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def fetch(directory: Path, url: str, **fields: Any) -> Any:
    """Fetch `url` into one output."""
    return try_app(URL, directory, outputs=["data"], fields={"url": url, **fields})


@pytest.mark.parametrize("page", ["/data", "/moved"])
def test_a_page_is_fetched_after_redirects(tmp_path: Path, site: str, page: str) -> None:
    """The content has the bytes of the page, also after a redirect."""
    assert fetch(tmp_path, site + page).contents == [BODY]


def test_the_address_may_come_from_a_port(tmp_path: Path, site: str) -> None:
    """Text connected to the port url is the address."""
    got = try_app(URL, tmp_path, inputs=[Given("url", f"{site}/data\n")], outputs=["data"])

    assert got.contents == [BODY]


@pytest.mark.parametrize(
    ("page", "code", "text"),
    [
        ("/none", "DF105", "answered 404"),
        ("/busy", "DF200", "answered 503"),
        ("/to-a-file", "DF105", "302"),
        ("/cut", "DF200", "ended after 5120 of 10240 bytes"),
    ],
)
def test_an_error_page_or_incomplete_page_is_a_failure(
    tmp_path: Path, site: str, page: str, code: str, text: str
) -> None:
    """An error page, a redirect to another scheme and an incomplete page are failures, not data."""
    failure = fetch(tmp_path, site + page).failure

    assert (failure.code, text in failure.text) == (code, True)


def test_a_page_over_the_limit_is_refused(tmp_path: Path, site: str) -> None:
    """More bytes than allowed are refused."""
    assert "larger than max_size (100 bytes)" in fetch(tmp_path, f"{site}/data", max_size=100).failure.text


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "ftp://x/y", "data", "http://"])
def test_only_http_urls_are_fetched(tmp_path: Path, url: str) -> None:
    """A URL with a scheme other than http and https is refused before a connection is opened."""
    assert fetch(tmp_path, url).failure.code == "DF104"


def test_a_refused_connection_can_be_retried(tmp_path: Path) -> None:
    """A refused connection is a failure that can be retried."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    failure = fetch(tmp_path, f"http://127.0.0.1:{port}/x").failure

    assert failure.retryable
    assert "cannot be fetched" in failure.text


@pytest.fixture
def free_port() -> int:
    """A port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.mark.parametrize("reuse", [True, False])
def test_the_data_of_one_client_are_the_content(tmp_path: Path, free_port: int, *, reuse: bool) -> None:
    """The data that one client sends until it closes are the content of every output."""
    fields = {"host": "127.0.0.1", "port": free_port, "bufsize": 100, "reuse_addr": reuse}
    got: list[Any] = []
    listening = threading.Thread(
        target=lambda: got.append(try_app(LISTENER, tmp_path, outputs=["a", "b"], fields=fields))
    )
    listening.start()
    with _connected(free_port) as client:
        client.sendall(BODY)
    listening.join()

    assert got[0].contents == [BODY] * 2


def test_a_client_that_resets_its_connection_is_named(tmp_path: Path, free_port: int) -> None:
    """The data are incomplete, so the attempt fails; the port is not the reason."""
    fields = {"host": "127.0.0.1", "port": free_port}
    got: list[Any] = []
    listening = threading.Thread(target=lambda: got.append(try_app(LISTENER, tmp_path, outputs=["a"], fields=fields)))
    listening.start()
    with _connected(free_port) as client:
        client.sendall(BODY)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset at the end
    listening.join()

    assert (got[0].failure.code, got[0].failure.retryable) == ("DF200", True)
    assert got[0].failure.text.startswith("the client broke the connection: ")


def _connected(port: int) -> socket.socket:
    """A connection to a listener that is about to come up."""
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            client = socket.create_connection(("127.0.0.1", port))
            if client.getsockname() != client.getpeername():
                return client
            client.close()  # without a listener, a connection from that very port is one to itself
        threading.Event().wait(0.01)


def test_a_port_in_use_is_a_failure(tmp_path: Path) -> None:
    """The failure names the port that is not available."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failure = try_app(LISTENER, tmp_path, fields={"host": "127.0.0.1", "port": port}).failure

    assert f"cannot listen on 127.0.0.1:{port}" in failure.text


def test_a_listener_takes_no_inputs(tmp_path: Path) -> None:
    """An edge into it is an error."""
    assert "takes no inputs" in try_app(LISTENER, tmp_path, inputs=[Given("x", 1)]).failure.text


@pytest.mark.slow
@pytest.mark.parametrize("connected", [True, False])
def test_a_cancelled_listener_ends(tmp_path: Path, free_port: int, *, connected: bool) -> None:
    """A cancelled listener ends, with or without a client."""
    fields = (Argument(name="host", value="127.0.0.1"), Argument(name="port", value=free_port))
    node = Template(key="l", name="listener", kind=Kind.APP, component=LISTENER, arguments=fields)
    data = Template(key="d", name="d", kind=Kind.DATA, component="dlg.data.drops.memory.InMemoryDROP")
    spec = ExecutorSpec(session="s", directory=str(tmp_path), templates=(node, data), links=(Link(source=0, target=1),))
    executor = LocalExecutor(spec)
    task = Task(0, 1, 0, "g_l_0", (), (), (Output(1, "g_d_0", 1, 0),))
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(executor.execute(task)))
    thread.start()
    log, pause = tmp_path / "logs" / "g_l_0.log", threading.Event()
    while not (log.exists() and "listening" in log.read_text()):
        pause.wait(0.01)  # a socket that is interrupted while it is made is closed later
    client = _connected(free_port) if connected else None
    while thread.is_alive():
        executor.abort(0, 1)
        thread.join(0.02)
    if client is not None:
        client.close()
    executor.close()

    assert results[0].failure.kind == "Interrupted"
