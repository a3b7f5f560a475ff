"""Tables of databases: SQLite, and a PostgreSQL server that the tests start."""

import getpass
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dropflow.data.read import read
from dropflow.data.registry import store_for
from dropflow.data.remote import commit_remote
from dropflow.data.repository import LocalRepository
from dropflow.data.store import Slot
from dropflow.errors import AppError, BadFileError, BadParameterError, MissingDependencyError, StorageError
from dropflow.execution.content_location import Handle
from dropflow.graph.build import GraphBuilder
from dropflow.graph.templates import Argument, Template
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.states import SessionState
from tests.lazy_module import LazyModule

sqlalchemy = LazyModule("sqlalchemy")
pytestmark = pytest.mark.skipif(find_spec("sqlalchemy") is None, reason="needs the extra databases")

Node = Callable[..., Template]
Slots = Callable[..., Slot]
RDBMS_CLASS = "dlg.data.drops.rdbms.RDBMSDrop"
PASSWORD = "right"
ROWS = [
    {"name": "a", "flux": 10.5, "count": 1, "good": True, "tags": ["x"]},
    {"name": "b", "flux": None, "count": 2, "good": False, "tags": {"y": 1}},
]


def _program(name: str) -> str:
    found = shutil.which(name) or next(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), "")
    if not found:
        pytest.skip(f"{name} is not installed: it is in the package postgresql")
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a database of a PostgreSQL server, without the password."""
    pytest.importorskip("psycopg", reason="needs the extra databases")
    initdb, postgres, ready = (_program(name) for name in ("initdb", "postgres", "pg_isready"))
    user: dict[str, Any] = {"user": "postgres"} if os.getuid() == 0 else {}  # it refuses to run as root
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "password").write_text(PASSWORD)
        if user:
            for path in (folder, f"{folder}/password"):
                shutil.chown(path, "postgres")
        making = [initdb, "-D", f"{folder}/db", "-U", "me", "-A", "scram-sha-256", f"--pwfile={folder}/password", "-N"]
        subprocess.run(making, check=True, stdout=subprocess.DEVNULL, cwd=folder, **user)
        serving = [postgres, "-D", f"{folder}/db", "-p", str(port), "-h", "127.0.0.1", "-k", folder, "-F"]
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(serving, stdout=log, stderr=log, cwd=folder, **user)
            try:
                while subprocess.run([ready, "-q", "-h", "127.0.0.1", "-p", str(port)], check=False).returncode:
                    assert process.poll() is None, Path(folder, "log").read_text()
                yield f"postgresql+psycopg://me@127.0.0.1:{port}/postgres"
            finally:
                process.terminate()
                process.wait()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty database of either kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/all.sqlite"
        return
    url = request.getfixturevalue("server")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    yield url
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("DROP SCHEMA public CASCADE; CREATE SCHEMA public"))
    engine.dispose()


def _do(url: str, *statements: str) -> list[Any]:
    """Execute statements from outside; return the rows of the last one."""
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            found = connection.execute(sqlalchemy.text(statement))
        rows = list(found) if found.returns_rows else []
    engine.dispose()
    return rows


def _tables(url: str) -> list[str]:
    engine = sqlalchemy.create_engine(url)
    names = sqlalchemy.inspect(engine).get_table_names()
    engine.dispose()
    return sorted(names)


def _write(template: Template, slot: Slot, rows: Any) -> Handle:
    part = store_for(template).part(slot)
    part.write(json.dumps(rows).encode(), text=True)
    return part.finish()


def _table(node: Node, url: str, name: str = "sources", **fields: Any) -> Template:
    return node(RDBMS_CLASS, category="RDBMS", dbtable=name, url=url, **fields)


@pytest.mark.slow
def test_rows_are_committed_once(node: Node, slot: Slots, repository: LocalRepository, database: str) -> None:
    """The table does not exist before the commit; then it has all rows. A drop without producers reads them."""
    template = _table(node, database)
    part = _write(template, slot(drop=1), ROWS)
    assert [name for name in _tables(database) if not name.startswith(".dropflow-")] == []
    content = repository.commit(1, 1, template, part)

    assert _tables(database) == ["sources"]
    assert json.loads(read(content)) == ROWS
    assert json.loads(read(store_for(template).initial(slot()))) == ROWS
    bright = store_for(_table(node, database, condition="flux > 3")).initial(slot())
    assert [row["name"] for row in json.loads(read(bright))] == ["a"]


@pytest.mark.slow
def test_rows_are_added_or_replace_those_there(
    node: Node, slot: Slots, repository: LocalRepository, database: str
) -> None:
    """Also to a table with types of its own. A late attempt changes nothing; no rows are a table without rows."""
    _do(database, "CREATE TABLE sources (name VARCHAR(9), seen DATE)", "INSERT INTO sources VALUES ('x', '2026-01-02')")
    rows = [{"name": "y", "seen": "2026-03-04"}]
    adding = _table(node, database)
    repository.discard(_write(adding, slot(drop=1), rows))
    content = repository.commit(1, 2, adding, _write(adding, slot(drop=1, attempt=2), rows))
    assert json.loads(read(content)) == [{"name": "x", "seen": "2026-01-02"}, *rows]
    replacing = _table(node, database, existing_rows="replace")
    content = repository.commit(2, 1, replacing, _write(replacing, slot(drop=2), rows))
    assert json.loads(read(content)) == rows
    content = repository.commit(3, 1, replacing, _write(replacing, slot(drop=3), []))
    assert json.loads(read(content)) == []
    assert _tables(database) == ["sources"]


@pytest.mark.slow
def test_the_first_of_several_drops_may_have_no_rows(
    node: Node, slot: Slots, repository: LocalRepository, database: str
) -> None:
    """The table that it makes has no columns of rows yet: it gets those of the next drop that has some."""
    template = _table(node, database)
    for drop, rows in enumerate(([], [], ROWS[:1], [], ROWS[1:]), start=1):
        content = repository.commit(drop, 1, template, _write(template, slot(drop=drop), rows))

    assert json.loads(read(content)) == ROWS
    assert _tables(database) == ["sources"]


@pytest.mark.slow
@pytest.mark.parametrize("is_made", [False, True])
def test_several_processes_make_one_table(
    node: Node, slot: Slots, repository: LocalRepository, database: str, *, is_made: bool
) -> None:
    """The nodes of a session commit at the same time: no commit fails, and no row of another is lost."""
    template = _table(node, database)
    if is_made:
        repository.commit(9, 1, template, _write(template, slot(drop=9), []))
    parts = [_write(template, slot(drop=drop), ROWS[:1]) for drop in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda part: commit_remote(part.location, part.final), parts))

    assert json.loads(read(store_for(template).initial(slot()))) == ROWS[:1] * 8
    assert _tables(database) == ["sources"]


@pytest.mark.slow
def test_what_cannot_be_written_is_named(node: Node, slot: Slots, repository: LocalRepository, database: str) -> None:
    """Text that is not rows, a column of two types, a column that the table does not have; nothing is left."""
    template = _table(node, database)
    for rows, text in (("x", "not a JSON list"), ([1], "not a JSON list"), ([{"a": 1}, {"a": "x"}], "several types")):
        with pytest.raises(AppError, match=text):
            _write(template, slot(), rows)
    _do(database, "CREATE TABLE sources (name VARCHAR(9))")
    with pytest.raises(AppError, match="sources has no column 'other'"):
        repository.commit(1, 1, template, _write(template, slot(drop=1), [{"other": 1}]))
    with pytest.raises(BadFileError, match=r"nothing at rdbms:.*/missing"):
        store_for(_table(node, database, "missing")).initial(slot())

    assert _tables(database) == ["sources"]


@pytest.mark.slow
def test_a_locked_table_is_an_error(node: Node, slot: Slots, repository: LocalRepository, database: str) -> None:
    """After the time that the node gives, with the address; nothing is written, and the next attempt succeeds."""
    template = _table(node, database, lock_timeout=0.2)
    repository.commit(1, 1, template, _write(template, slot(drop=1), ROWS[:1]))
    part = _write(template, slot(drop=2), ROWS[1:])
    engine = sqlalchemy.create_engine(database)
    with engine.connect() as connection:
        is_sqlite = database.startswith("sqlite")
        lock = "BEGIN EXCLUSIVE" if is_sqlite else "LOCK TABLE sources IN ACCESS EXCLUSIVE MODE"
        connection.execute(sqlalchemy.text(lock))
        text = r"rdbms:.*/sources cannot be committed: .*(database is locked|lock timeout)"
        with pytest.raises(StorageError, match=text) as caught:
            repository.commit(2, 1, template, part)
        connection.rollback()
    assert "raise 'lock_timeout'" in caught.value.hint
    engine.dispose()
    assert json.loads(read(store_for(template).initial(slot()))) == ROWS[:1]
    content = repository.commit(2, 2, template, _write(template, slot(drop=2, attempt=2), ROWS[1:]))
    assert json.loads(read(content)) == ROWS


@pytest.mark.slow
def test_wrong_credentials_are_an_error(node: Node, slot: Slots, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the address, what the server says and where to look, and without the password; also if no server answers."""
    monkeypatch.setenv("PGPASSWORD", "wrong")
    with pytest.raises(StorageError, match=r"rdbms:postgresql.*/sources cannot be found: .*authentication") as caught:
        store_for(_table(node, server)).initial(slot())
    assert "credentials" in caught.value.hint
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(StorageError, match="refused"):
        store_for(_table(node, f"postgresql+psycopg://me@127.0.0.1:{port}/postgres")).initial(slot())


@pytest.mark.slow
def test_fields_are_checked_before_anything_runs(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """No table, a URL of no database, a password in the graph, and a package that is missing."""
    for fields, text in (
        ({}, "does not name its dbtable"),
        ({"dbtable": "t", "url": "nosuch://x/y"}, "not the URL of a database"),
        ({"dbtable": "t", "url": "postgresql://me:xyz@h/d"}, "password in 'url'"),
        ({"dbtable": "t", "dbparams": {"password": "xyz"}}, "password in 'dbparams'"),
    ):
        with pytest.raises(BadParameterError, match=text) as caught:
            store_for(node(RDBMS_CLASS, **fields)).check()
        assert "xyz" not in str(caught.value)
    with pytest.raises(MissingDependencyError, match="needs the package"):
        store_for(node(RDBMS_CLASS, dbtable="t", url="oracle://h/d")).check()
    monkeypatch.setitem(__import__("sys").modules, "sqlalchemy", None)
    with pytest.raises(MissingDependencyError, match="sqlalchemy") as missing:
        store_for(node(RDBMS_CLASS, dbtable="t")).check()
    assert "[databases]" in missing.value.hint


def test_the_fields_of_daliuge_name_a_database(node: Node) -> None:
    """The module and its parameters, as DALiuGE has them."""
    template = node(RDBMS_CLASS, dbtable="t", dbmodule="psycopg", dbparams={"user": getpass.getuser(), "host": "h"})
    assert store_for(template).shared_name.startswith(f"rdbms:postgresql+psycopg://{getpass.getuser()}@h/")


@pytest.mark.slow
def test_a_graph_fills_and_reads_a_table(tmp_path: Path) -> None:
    """By default it is in an SQLite file of the session; programs read and write JSON."""
    builder = GraphBuilder("g")

    def field(name: str, value: str) -> Argument:
        return Argument(name=name, value=value, parameter_type="ComponentParameter")

    def app(name: str, command: str) -> None:
        builder.app(
            name,
            component="dlg.apps.bash_shell_app.BashShellApp",
            category="BashShellApp",
            arguments=(field("command", command),),
        )

    app("Make", """echo '[{"name": "a", "flux": 1.5}]' > %o[0]""")
    builder.data("table", component=RDBMS_CLASS, category="RDBMS", arguments=(field("dbtable", "t"),))
    app("Show", "cat %i[0] > %o[0]")
    builder.data(
        "out", component="dlg.data.drops.file.FileDROP", category="File", arguments=(field("filepath", "out.json"),)
    )
    for one, other in (("Make", "table"), ("table", "Show"), ("Show", "out")):
        builder.connect(one, other)
    directory = local_run.prepare_directory(tmp_path / "run")
    result = local_run.run(builder.build(), directory, RunOptions(runner="inline"))

    assert result.status is SessionState.FINISHED, result.failures
    assert json.loads((directory / "files" / "out.json").read_text()) == [{"name": "a", "flux": 1.5}]
    with sqlite3.connect(directory / "files" / "tables.sqlite") as connection:
        assert connection.execute("SELECT * FROM t").fetchall() == [("a", 1.5)]
    connection.close()
