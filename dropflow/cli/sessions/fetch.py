"""``dropflow fetch``: copy the results of a session into a directory."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal

import click

from dropflow.cli.candidates import drops
from dropflow.cli.common_options import connection_options, output_options, session_argument
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, OutputKind
from dropflow.errors import NotFoundError, StorageError, UsageError
from dropflow.ids import drop_file_name, safe_name
from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    from dropflow.api.client import Client
    from dropflow.api.drop_records import DropDetail, ResultInfo
    from dropflow.api.requests import ResultList
    from dropflow.cli.sessions.downloads import FetchReply


@click.command("fetch")
@output_options
@session_argument
@click.argument("drop", metavar="[DROP]", required=False, shell_complete=drops)
@connection_options
@click.option(
    "-o",
    "target",
    metavar="DIR|FILE",
    help="Where to put them: a directory, the session's name by default, or a file that ends with .tar or .zip.",
)
@click.option(
    "--stores/--no-stores",
    "with_stores",
    default=True,
    help="Whether to copy results that are in stores (s3://, https:// and others), through their nodes.",
)
def fetch_command(
    output: CommandOutput,
    *,
    manager: ConnectionOptions,
    session: str,
    drop: str | None,
    target: str | None,
    with_stores: bool,
) -> Exit:
    """Copy the results of SESSION here, or the content of one DROP of it.

    DIR gets the same results/ and files/ as with 'dropflow run --keep DIR'. A file that is there already with the same
    content stays, and another one of that name is replaced. A directory that dropflow did not make is kept as
    NAME.before-fetch, and no file replaces it. An interrupted fetch continues, in large files too, when you fetch
    again. Exit status 1 if something could not be fetched: the answer lists what, and why. Exit status 3 if the
    connection broke, 130 after Ctrl-C, and 143 after SIGTERM; then the answer lists what is left.
    """
    from dropflow.cli.sessions.downloads import download_archive

    archive = _archive_format(target)
    if archive is not None and drop is not None:
        raise UsageError(f"an archive has the results of a session, not one drop: {target}", hint="name a directory")
    root = Path(target or safe_name(session, fallback="session")).absolute()
    quiet = output.kind is OutputKind.QUIET
    with manager.connect() as client:
        if archive is not None:
            output.answer(download_archive(client, session, archive, root, quiet=quiet))
            return Exit.FINISHED
        reply = fetch_results(client, session, root, drop=drop, with_stores=with_stores, quiet=quiet)
    output.answer(reply)
    return reply.status


def fetch_results(
    client: "Client",
    session: str,
    root: Path,
    *,
    drop: str | None = None,
    with_stores: bool = True,
    quiet: bool = True,
) -> "FetchReply":
    """Copy the results of a session into a directory, or the content of one drop, and return what is there.

    Those in stores are read by the nodes, which have the credentials; `with_stores` is whether to copy them.

    Raises
    ------
    StorageError
        They cannot be written there.
    """
    from dropflow.api.contents_answer import result_paths
    from dropflow.cli.sessions.downloads import FetchReply, ResultDownload, WantedFile
    from dropflow.cli.sessions.incoming_files import ResultDirectory
    from dropflow.submission.progress import transfer_progress

    listing = client.results(session) if drop is None else _one_result(client, session, drop)
    wanted = (*listing.results, *(listing.in_stores if with_stores else ()))
    files = [WantedFile(result, path) for result, path in result_paths(wanted)]
    sizes = sum(file.result.size for file in files)
    download = None
    try:
        with ResultDirectory(root) as results, transfer_progress(len(files), sizes, quiet=quiet) as count:
            download = ResultDownload(client, session, results, count)
            with _interrupted_by_sigterm() as signals:
                fetched = download.run(files)
    except OSError as error:
        raise _not_stored(root, error, left=download.left if download is not None else 0) from error
    return FetchReply.of(
        session,
        str(root),
        [fetched[file] for file in files],
        silent=listing.missing,
        is_interrupted=download.is_interrupted,
        is_terminated=bool(signals),
    )


@contextmanager
def _interrupted_by_sigterm() -> Iterator[list[int]]:
    """Let SIGTERM interrupt as Ctrl-C does, so that the command prints what is left; yield the signals that came."""
    received: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, former)


def _not_stored(root: Path, error: OSError, *, left: int) -> StorageError:
    """Return the error for results that cannot be written, `left` bytes of them."""
    from dropflow.data.storage_errors import storage_error
    from dropflow.formatting import format_size

    problem = storage_error("write results", root, error)
    more = f"; {format_size(left)} are left to fetch. Files here stay: fetch again, with the same -o" if left else ""
    return StorageError(
        f"results cannot be stored: {error.strerror}",
        where=str(root),
        hint=(problem.hint or "choose another place") + more,
    )


def _archive_format(target: str | None) -> Literal["tar", "zip"] | None:
    """Return the format that the name of a file asks for; None for a directory.

    Raises
    ------
    UsageError
        It is the name of a file of another kind.
    """
    suffix = Path(target or "").suffix.lower()
    if target is None or target.endswith(os.sep) or Path(target).is_dir() or not suffix[1:].isalpha():
        return None
    if suffix == ".tar":
        return "tar"
    if suffix == ".zip":
        return "zip"
    raise UsageError(
        f"results cannot be written as {suffix}: {target}",
        hint=f"end it with .tar or .zip for an archive, or with a slash for a directory of that name: {target}/",
    )


def _one_result(client: "Client", session: str, drop: str) -> "ResultList":
    """Return the drop as a result: under its path if it is a result, else under its id."""
    from dropflow.api.requests import ResultList
    from dropflow.cli.output import shell_command

    detail = client.drop(session, drop)
    if detail.is_app:
        hint = f"see {shell_command('log', session, detail.oid)}"
        raise NotFoundError(f"{detail.oid} is an application, and has no content", hint=hint)
    listing = client.results(session)
    known = next((result for result in (*listing.results, *listing.in_stores) if result.oid == detail.oid), None)
    return ResultList(results=(known or content_of(detail, f"results/{drop_file_name(detail.oid)}"),))


def content_of(detail: "DropDetail", path: str) -> "ResultInfo":
    """Return the content of a data drop as a result with this path."""
    from dropflow.api.drop_records import ResultInfo

    return ResultInfo(
        drop=detail.drop,
        oid=detail.oid,
        name=detail.name,
        node=detail.node,
        path=path,
        size=detail.size or 0,
        is_directory=detail.category == "Directory",
    )
