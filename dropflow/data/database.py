"""RDBMS drops: the rows of a table, by SQLAlchemy.

The content is a JSON list with an object for each row, so a function receives and returns a list of dictionaries. What
an attempt writes goes into a table of its own. At the commit, one transaction copies it into the table of the drop, and
removes that other table: readers see all rows or none.

The location is ``rdbms:<URL of the database>/<table>``. Databases have no secrets in their URLs here: PostgreSQL takes
a password from ``~/.pgpass`` or ``PGPASSWORD``, others from their own files.
"""

import base64
import datetime as dt
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import quote, unquote, urlsplit

from dropflow.data.file_names import is_blank
from dropflow.data.remote import split_location
from dropflow.data.store import IO, Slot, common
from dropflow.data.url import UrlStore
from dropflow.data.workspace import BESIDE
from dropflow.errors import AppError, BadParameterError, MissingDependencyError, install_hint, optional_package
from dropflow.graph.components import Component, Parameter
from dropflow.graph.templates import Kind

RDBMS = Component(
    name="RDBMS",
    kind=Kind.DATA,
    category="RDBMS",
    dropclass="dlg.data.drops.rdbms.RDBMSDrop",
    aliases=("dlg.data.drops.RDBMSDrop", "dlg.drop.RDBMSDrop"),
    description="The rows of a table in a database. Functions receive and return a list of dictionaries, programs a "
    "JSON file. The rows that a producer writes are added in one transaction.",
    parameters=(
        Parameter(name="dbtable", description="Name of the table, or schema.table. It is made if it does not exist."),
        Parameter(
            name="url",
            description="The database as SQLAlchemy names it, without a password: postgresql+psycopg://user@host/name "
            "or sqlite:///file. A relative file is below the session's files.",
        ),
        Parameter(
            name="dbmodule",
            default="sqlite3",
            description="Without a url: the module for the database (sqlite3, psycopg, psycopg2, pymysql).",
        ),
        Parameter(
            name="dbparams",
            type="Json",
            default=None,
            description="Without a url: database, user, host and port. A password there is refused.",
        ),
        Parameter(name="condition", description="Only rows for which this is true are read, such as flux > 3."),
        Parameter(
            name="existing_rows",
            type="Select",
            default="keep",
            options=("keep", "replace"),
            parameter_type="ComponentParameter",
            description="Whether rows that are there already stay when others are written. With 'keep', a drop that "
            "runs again adds its rows again.",
        ),
        Parameter(
            name="lock_timeout",
            type="Float",
            default=30.0,
            minimum=0.1,
            maximum=90.0,
            parameter_type="ComponentParameter",
            description="Seconds after which it fails if another program locks the table.",
        ),
        *common(persists=True),
    ),
    ports=IO,
)

_DIALECTS = {"sqlite3": "sqlite", "psycopg": "postgresql+psycopg", "psycopg2": "postgresql+psycopg2"}
_DEFAULT_FILE = "tables.sqlite"
_RELATIVE_SQLITE = re.compile(r"(sqlite[\w+]*:///)(?!/)")
_TABLE_TOKEN_BYTES = 8
"""Random bytes in the name of an uncommitted table."""
_CONNECT_SECONDS = 10
"""Seconds in which PostgreSQL must accept a connection: an integer, as its client takes it."""
_NO_ROWS = "no_rows"
"""The only column of a table to which no rows were written: the first rows have it made again."""
_IN_MEMORY = 16 << 20
"""Bytes of rows above which they go through a temporary file."""


class DatabaseStore(UrlStore):
    """Rows of a table."""

    component = RDBMS
    encoding = "json"

    def _address(self, values: Mapping[str, Any]) -> str:
        table = "" if is_blank(values["dbtable"]) else quote(str(values["dbtable"]).strip(), safe="{}")
        database = str(values["url"]).strip() if not is_blank(values["url"]) else self._from_module(values)
        if "password=" in database or urlsplit(database).password is not None:
            self._refuse_password("url")
        return f"rdbms:{database}/{table}" if table else ""

    def _from_module(self, values: Mapping[str, Any]) -> str:
        """Return the URL that DALiuGE's fields mean."""
        given = values["dbparams"] if isinstance(values["dbparams"], dict) else {}
        if given.get("password") or given.get("passwd"):
            self._refuse_password("dbparams")
        module = "sqlite3" if is_blank(values["dbmodule"]) else str(values["dbmodule"]).strip()
        dialect = _DIALECTS.get(module, f"mysql+{module}")
        database = str(given.get("database") or given.get("dbname") or "")
        if dialect == "sqlite":
            return f"sqlite:///{database or _DEFAULT_FILE}"
        user = f"{quote(str(given['user']))}@" if given.get("user") else ""
        port = f":{given['port']}" if given.get("port") else ""
        return f"{dialect}://{user}{given.get('host', '')}{port}/{database}"

    def _refuse_password(self, field: str) -> None:
        raise BadParameterError(
            f"there is a password in '{field}' of node '{self._template.name}'",
            where=self._template.name,
            fields=(field,),
            hint="remove it from the graph: each host takes it from ~/.pgpass, PGPASSWORD, or the database's own files",
        )

    def _access(self, values: Mapping[str, Any]) -> dict[str, Any]:
        options = {name: values[name] for name in ("condition", "existing_rows", "lock_timeout")}
        return {name: value for name, value in options.items() if not is_blank(value)}

    def _place(self, slot: Slot) -> str:
        location = super()._place(slot)
        return _RELATIVE_SQLITE.sub(lambda match: f"{match[1]}{slot.workspace.files}/", location, count=1)

    def _part(self, final: str, session: str) -> str:
        url, separator, options = final.rpartition("#")
        return f"{url.rpartition('/')[0]}/{BESIDE}{secrets.token_hex(_TABLE_TOKEN_BYTES)}{separator}{options}"


class _Tables:
    """The `RemoteService` of ``rdbms``."""

    is_exact = False

    def check(self, url: str) -> None:
        sql = _sqlalchemy()
        database = _parts(url)[0]
        try:
            sql.engine.make_url(database).get_dialect().import_dbapi()
        except ImportError as error:
            raise MissingDependencyError(
                f"{database} needs the package {error.name}, which is not installed",
                hint=f"{install_hint('databases')} has that for PostgreSQL; pip install {error.name}",
                of_host=True,
            ) from error
        except sql.exc.ArgumentError as error:
            raise BadParameterError(
                f"{database} is not the URL of a database: {error}",
                fields=("url",),
                hint="give one such as postgresql+psycopg://user@host/name or sqlite:///file",
            ) from error

    def size(self, location: str) -> int:
        """Raise if there is no such table. The size of its content is not known before it is read."""
        with _connection(location) as (connection, table_name, schema):
            if not _sqlalchemy().inspect(connection).has_table(table_name, schema=schema):
                raise FileNotFoundError(f"there is no table {table_name}")
        return 0

    def version(self, location: str, *, trust_times: bool) -> Sequence[str]:
        return ()

    def open(self, location: str) -> BinaryIO:
        sql = _sqlalchemy()
        rows = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - returned
        condition = split_location(location)[1].get("condition")
        with _connection(location) as (connection, table_name, schema):
            table = sql.Table(table_name, sql.MetaData(), schema=schema, autoload_with=connection)
            query = sql.select(table)
            if condition:
                query = query.where(sql.text(condition))
            before = b"["
            for row in connection.execution_options(yield_per=1000).execute(query).mappings():
                rows.write(before + json.dumps(dict(row), default=_plain).encode())
                before = b",\n"
        rows.write(b"]" if before == b",\n" else b"[]")
        rows.seek(0)
        return cast(BinaryIO, rows)

    def put(self, path: str, location: str) -> None:
        sql = _sqlalchemy()
        rows = _rows(Path(path).read_bytes())
        with _connection(location, makes=True) as (connection, table_name, _), connection.begin():
            columns = [sql.Column(name, kind) for name, kind in _columns(rows).items()]
            table = sql.Table(table_name, sql.MetaData(), *(columns or [sql.Column(_NO_ROWS, sql.Integer)]))
            table.create(connection)
            if rows:
                connection.execute(table.insert(), rows)

    def rename(self, part: str, final: str) -> None:
        sql = _sqlalchemy()
        written_name = _parts(part)[1]
        with _connection(final) as (connection, table_name, schema), connection.begin():
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")  # sqlite3 would begin with the first row
            written = sql.Table(written_name, sql.MetaData(), autoload_with=connection)
            is_empty = connection.execute(sql.select(written).limit(1)).first() is None
            target = self._target(connection, table_name, schema, is_empty=is_empty)
            if target is None and connection.dialect.name == "postgresql":
                # Of several processes, the first one makes it.
                connection.execute(sql.text("SELECT pg_advisory_xact_lock(hashtext(:name))"), {"name": table_name})
                target = self._target(connection, table_name, schema, is_empty=is_empty)
            if target is None:
                columns = (sql.Column(column.name, column.type) for column in written.columns)
                target = sql.Table(table_name, sql.MetaData(), *columns, schema=schema)
                target.drop(connection, checkfirst=True)
                target.create(connection)
            if split_location(final)[1].get("existing_rows") == "replace":
                connection.execute(target.delete())
            if not is_empty:
                self._copy(connection, written, target)
            written.drop(connection)

    def _target(self, connection: Any, name: str, schema: str | None, *, is_empty: bool) -> Any:
        """Return the table that gets the rows; None if it is to be made, also in place of one without rows."""
        sql = _sqlalchemy()
        if not sql.inspect(connection).has_table(name, schema=schema):
            return None
        target = sql.Table(name, sql.MetaData(), schema=schema, autoload_with=connection)
        return None if not is_empty and target.columns.keys() == [_NO_ROWS] else target

    def _copy(self, connection: Any, written: Any, target: Any) -> None:
        sql = _sqlalchemy()
        names = written.columns.keys()
        for name in names:
            if name not in target.columns:
                raise AppError(
                    f"table {target.name} has no column {name!r}: it has {', '.join(target.columns.keys())}",
                    hint="write objects with the names of its columns",
                )
        # PostgreSQL does not take text for a time. SQLite would make a number of it by a cast.
        casts = connection.dialect.name != "sqlite"
        values = [sql.cast(written.c[name], target.c[name].type) if casts else written.c[name] for name in names]
        connection.execute(target.insert().from_select(names, sql.select(*values)))

    def remove(self, location: str) -> None:
        """Remove what was not committed. The table of a drop stays: it may have rows of others."""
        sql = _sqlalchemy()
        table_name = _parts(location)[1]
        if table_name.startswith(BESIDE):
            with _connection(location) as (connection, _, _), connection.begin():
                sql.Table(table_name, sql.MetaData()).drop(connection, checkfirst=True)


SERVICE = _Tables()
"""The service for `dropflow.data.remote`."""


def _sqlalchemy() -> Any:
    return optional_package("sqlalchemy", "tables of databases need", "databases", of_host=True)


def _parts(location: str) -> tuple[str, str, str | None]:
    """Return the URL of the database, the name of the table, and its schema."""
    database, _, name = split_location(location)[0].removeprefix("rdbms:").rpartition("/")
    name = unquote(name)
    if name.startswith(BESIDE):
        return database, name, None
    schema, _, table = name.rpartition(".")
    return database, table, schema or None


@contextmanager
def _connection(location: str, *, makes: bool = False) -> Iterator[tuple[Any, str, str | None]]:
    """Connect to the database of a location. Yields the connection, the name of the table, and its schema.

    Raises
    ------
    FileNotFoundError
        There is no such SQLite file, and it is not to be made.
    """
    sql = _sqlalchemy()
    database, table, schema = _parts(location)
    url = sql.engine.make_url(database)
    kind, seconds = url.get_backend_name(), float(split_location(location)[1].get("lock_timeout", 30.0))
    options: dict[str, Any] = {}
    if kind == "sqlite":
        options = {"timeout": seconds}
        if makes:
            Path(url.database).parent.mkdir(parents=True, exist_ok=True)
        elif not os.path.exists(url.database):  # noqa: PTH110 - text; SQLite would make an empty one
            raise FileNotFoundError(f"there is no file {url.database}")
    elif kind == "postgresql":
        options = {"connect_timeout": _CONNECT_SECONDS}
    engine = sql.create_engine(url, poolclass=sql.pool.NullPool, connect_args=options)
    try:
        with engine.connect() as connection:
            if kind == "postgresql":
                connection.exec_driver_sql(f"SET lock_timeout = {int(seconds * 1000)}")
                connection.commit()
            yield connection, table, schema
    finally:
        engine.dispose()


def _rows(body: bytes) -> list[dict[str, Any]]:
    """Return the rows of a content. Each has all columns.

    Raises
    ------
    AppError
        It is not a JSON list of objects.
    """
    try:
        parsed = json.loads(body or b"[]")
    except ValueError as error:
        parsed = str(error)
    rows = [parsed] if isinstance(parsed, dict) else parsed
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise AppError(
            f"the output for a table is not a JSON list of objects: {body[:60]!r}",
            hint='write rows such as [{"name": "x", "flux": 1.5}]; functions return a list of dictionaries',
        )
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in names} for row in rows]


def _columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the type of each column of the rows."""
    return {name: _kind(name, (row[name] for row in rows)) for name in rows[0]} if rows else {}


def _kind(name: str, values: Iterable[Any]) -> Any:
    sql = _sqlalchemy()
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {dict, list} and kinds:
        return sql.JSON()
    for kind, column in ((bool, sql.Boolean()), (int, sql.BigInteger()), (str, sql.Text())):
        if kinds <= {kind} and kinds:
            return column
    if kinds <= {int, float}:
        return sql.Double() if kinds else sql.Text()
    raise AppError(
        f"the values of column {name!r} have several types: {', '.join(sorted(kind.__name__ for kind in kinds))}",
        hint="write values of one type",
    )


def _plain(value: Any) -> Any:
    """Return a value of a row as JSON has it."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(value).decode()
    return str(value)
