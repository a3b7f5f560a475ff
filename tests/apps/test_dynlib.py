"""Shared libraries as applications, with libraries that gcc builds from the header of dropflow."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from dropflow.apps.dynlib import HEADER
from dropflow.apps.needs import check
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.local_run import prepare_directory
from dropflow.states import SessionState

_GCC = shutil.which("gcc")
pytestmark = pytest.mark.skipif(_GCC is None, reason="there is no gcc to build libraries with")

_COPY = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dynlib.h"
struct state { char name[64]; };
int init(dlg_app_info *app, const char ***params) {
    struct state *mine = calloc(1, sizeof *mine);
    for (; *params; params++)
        if (!strcmp((*params)[0], "greeting")) strncpy(mine->name, (*params)[1], 63);
    app->data = mine;
    return 0;
}
int run(dlg_app_info *app) {
    struct state *mine = app->data;
    char buf[5], text[200];
    app->running();
    int n = snprintf(text, sizeof text, "%s %s %u %d ", mine->name, app->inputs[0].name, app->n_ranks,
                     app->inputs[0].status);
    if (app->outputs[0].write(text, n) != (size_t)n) return 1;
    for (size_t got; (got = app->inputs[0].read(buf, 5));) app->outputs[0].write(buf, got);
    free(mine);
    app->done(DLG_APP_FINISHED);
    return 0;
}
"""
_INIT = '#include "dynlib.h"\nint init(dlg_app_info *app, const char ***params) { return 0; }\n'


def built(folder: Path, source: str, *options: str) -> Path:
    """Build a library, and return its path."""
    (folder / "lib.c").write_text(source, encoding="utf-8")
    library = folder / "libmade.so"
    command = [str(_GCC), "-Wall", "-shared", "-fPIC", f"-I{HEADER.parent}", *options, "-o", str(library)]
    subprocess.run([*command, str(folder / "lib.c")], check=True)
    return library


def using(library: object, name: str = "DynlibApp", *, streaming: bool = False) -> PhysicalGraph:
    """Return text -> library -> result."""
    fields = {"libpath": str(library), "greeting": "hello"}
    arguments = tuple(
        Argument(name=key, value=value, parameter_type="ApplicationArgument") for key, value in fields.items()
    )
    builder = GraphBuilder("dynlib")
    builder.app("make", component="dlg.apps.simple.HelloWorldApp").data("text").data("result", persist=True)
    builder.app("library", component=f"dlg.apps.dynlib.{name}", arguments=arguments)
    builder.connect("make", "text").connect("text", "library", target_port="words", streaming=streaming)
    return builder.connect("library", "result").build()


def outcome(graph: PhysicalGraph, folder: Path) -> tuple[SessionState, bytes, str]:
    """Run a graph in worker processes; return its state, the result, and the codes and texts of its failures."""
    directory = prepare_directory(folder / "run")
    found = local_run.run(graph, directory, RunOptions(runner="processes", workers=1, infrastructure_retries=0))
    files = sorted((directory / "results").iterdir()) if found.status is SessionState.FINISHED else []
    return (
        found.status,
        b"".join(file.read_bytes() for file in files),
        " ".join(f"{e.code} {e.text}" for e in found.failures),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DynlibApp", "DynlibProcApp"])
def test_a_library_reads_and_writes(tmp_path: Path, name: str) -> None:
    """It gets the fields of its node, reads its input to the end in pieces, and writes its output."""
    status, result, failures = outcome(using(built(tmp_path, _COPY), name), tmp_path)

    assert (status, failures) == (SessionState.FINISHED, "")
    assert result == b"hello words 0 2 Hello World"


@pytest.mark.slow
@pytest.mark.parametrize("streaming", [False, True])
def test_a_library_gets_a_stream(tmp_path: Path, *, streaming: bool) -> None:
    """Each block comes to data_written, and the end to drop_completed, over streaming and other links."""
    source = (
        _INIT
        + """
    void data_written(dlg_app_info *app, const char *uid, const char *data, size_t n) {
        app->outputs[0].write(data, n);
    }
    void drop_completed(dlg_app_info *app, const char *uid, drop_status status) {
        app->outputs[0].write(app->n_streaming_inputs == 1 && !app->n_inputs ? "." : "?", 1);
    }
    """
    )
    graph = using(built(tmp_path, source), "DynlibStreamApp", streaming=streaming)
    status, result, failures = outcome(graph, tmp_path)

    assert (status, result, failures) == (SessionState.FINISHED, b"Hello World.", "")


@pytest.mark.slow
def test_a_library_may_use_python(tmp_path: Path) -> None:
    """init2 and run2 are called with the interpreter locked; an exception that run2 returns is the error."""
    headers = sysconfig.get_paths()["include"]
    if not (Path(headers) / "Python.h").is_file():
        pytest.skip("there are no headers of Python")
    source = """
    #include <Python.h>
    #include "dynlib.h"
    int init2(dlg_app_info *app, PyObject *params) { return !PyDict_GetItemString(params, "greeting"); }
    PyObject *run2(dlg_app_info *app) { return PyObject_CallFunction(PyExc_ValueError, "s", "no sky"); }
    """
    status, _, failures = outcome(using(built(tmp_path, source, f"-I{headers}")), tmp_path)

    assert status is SessionState.FAILED
    assert "no sky" in failures


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        ("int run(dlg_app_info *app) { return 3; }", "DF105", "returned 3"),
        ("int run(dlg_app_info *app) { app->done(DLG_APP_ERROR); return 0; }", "DF105", "done with an error"),
        ("int walk(void) { return 0; }", "DF104", "has no function run or run2"),
        ("int run(dlg_app_info *app) { *(volatile int *)0 = 1; return 0; }", "", "SIGSEGV"),
    ],
    ids=["not zero", "done", "no function", "crash"],
)
def test_a_library_that_fails(tmp_path: Path, body: str, code: str, text: str) -> None:
    """The error has a code, and names the library or the signal; nothing is committed."""
    status, _, failures = outcome(using(built(tmp_path, _INIT + body)), tmp_path)

    assert status is SessionState.FAILED
    assert code in failures
    assert text in failures


@pytest.mark.slow
def test_a_worker_is_replaced_after_a_crash(tmp_path: Path) -> None:
    """The library crashes once; the attempt is repeated in another process."""
    flag = tmp_path / "crashed"
    crash = f"""
    #include <stdio.h>
    int run(dlg_app_info *app) {{
        FILE *seen = fopen("{flag}", "r");
        if (!seen) {{ fclose(fopen("{flag}", "w")); *(volatile int *)0 = 1; }}
        return app->outputs[0].write("again", 5) != 5;
    }}"""
    graph = using(built(tmp_path, _INIT + crash))
    directory = prepare_directory(tmp_path / "run")
    found = local_run.run(graph, directory, RunOptions(runner="processes", workers=1))

    assert found.status is SessionState.FINISHED
    assert next((directory / "results").iterdir()).read_bytes() == b"again"


@pytest.mark.slow
def test_a_library_that_is_missing_or_damaged(tmp_path: Path) -> None:
    """A missing one is found before anything runs; a file that is no library when it is loaded."""
    graph = using(tmp_path / "libnot.so")
    (finding,) = check(graph.templates, graph.links)
    (tmp_path / "libbad.so").write_text("this is no library", encoding="utf-8")
    status, _, failures = outcome(using(tmp_path / "libbad.so"), tmp_path)

    assert (finding.code, finding.where) == ("DF106", "library")
    assert "libnot.so does not exist" in finding.text
    assert status is SessionState.FAILED
    assert "DF104 the library" in failures
    assert "cannot be loaded" in failures


def test_a_library_is_named_as_for_the_loader() -> None:
    """A name without a path is looked for where the loader looks; that of the C library is found."""
    assert check(using("libc.so.6").templates, ()) == []
    (finding,) = check(using("libno-such-library.so").templates, ())
    assert finding.code == "DF106"
