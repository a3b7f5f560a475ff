"""The answer of ``dropflow fetch``."""

from collections.abc import Iterator, Sequence

import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.progress import shell_command
from dropflow.formatting import format_size, plural

__all__ = ["FetchReply", "FetchedFile", "MissedFile"]

_SHOWN_FILES = 12
_SHOWN_MISSING = 50


class FetchedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One result that is here now; `was_there` if it was here before, with the same content."""

    drop: str
    node: str
    path: str
    size: int
    was_there: bool = False


class MissedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One result that could not be fetched, and why; `is_cut_off` if the connection to the manager broke.

    The first `here` of its `size` bytes are kept, and the next fetch continues after them.
    """

    drop: str
    node: str
    path: str
    code: str
    text: str
    size: int = 0
    here: int = 0
    is_cut_off: bool = False


class FetchReply(msgspec.Struct, frozen=True, kw_only=True):
    """The results that are here, and those that could not be fetched.

    Attributes
    ----------
    fetched, were_there, missed : int
        How many results were fetched, were here already, and could not be fetched.
    bytes : int
        Of the results that were fetched.
    missing : tuple of MissedFile
        What could not be fetched.
    silent : tuple of str
        Nodes that did not answer the request for their results.
    interrupted : bool
        Whether it ended by Ctrl-C or SIGTERM; `missing` has what was not fetched yet.
    terminated : bool
        Whether that was SIGTERM.
    """

    ok: bool
    session: str
    output: str
    fetched: int
    were_there: int
    missed: int
    bytes: int
    files: tuple[FetchedFile, ...]
    missing: tuple[MissedFile, ...] = ()
    silent: tuple[str, ...] = ()
    interrupted: bool = False
    terminated: bool = False

    @classmethod
    def of(
        cls,
        session: str,
        output: str,
        results: Sequence[FetchedFile | MissedFile],
        silent: tuple[str, ...],
        *,
        is_interrupted: bool = False,
        is_terminated: bool = False,
    ) -> "FetchReply":
        """Return the reply for results that were fetched or missed."""
        files = tuple(one for one in results if isinstance(one, FetchedFile))
        missing = tuple(one for one in results if isinstance(one, MissedFile))
        fresh = [file for file in files if not file.was_there]
        return cls(
            ok=not missing and not silent,
            session=session,
            output=output,
            fetched=len(fresh),
            were_there=len(files) - len(fresh),
            missed=len(missing),
            bytes=sum(file.size for file in fresh),
            files=files,
            missing=missing,
            silent=silent,
            interrupted=is_interrupted,
            terminated=is_interrupted and is_terminated,
        )

    def lines(self) -> Iterator[str]:
        """The files, then what is missing and why."""
        there = f", {self.were_there:,} were there already" if self.were_there else ""
        yield f"{plural(self.fetched, 'result')} ({format_size(self.bytes)}) in {self.output}{there}"
        shown = [file for file in self.files if not file.was_there]
        yield from (f"  {file.path}" for file in shown[:_SHOWN_FILES])
        if len(shown) > _SHOWN_FILES:
            yield f"  ... and {len(shown) - _SHOWN_FILES:,} more (--output json has them all)"
        if self.interrupted:
            left = [one for one in self.missing if one.is_cut_off]
            yield f"interrupted: {plural(len(left), 'result')} left to fetch{_sizes(left)}"
        refused = [one for one in self.missing if not one.is_cut_off]
        for one in refused[:_SHOWN_MISSING]:
            yield f"missing: {one.path} of {one.drop} on {one.node}: {one.text}"
        if len(refused) > _SHOWN_MISSING:
            yield f"missing: {len(refused) - _SHOWN_MISSING:,} more (--output json has them all)"
        cut_off = [one for one in self.missing if one.is_cut_off]
        if cut_off and not self.interrupted:
            yield f"error {cut_off[0].code}: {cut_off[0].text}"
            count = plural(len(cut_off), "result")
            yield f"missing: {count}, because the connection to the manager broke{_sizes(cut_off)}"
        yield from (f"missing: the results on node {node}, which did not answer" for node in self.silent)
        if not self.ok:
            yield f"to fetch what is missing: {shell_command('fetch', self.session)} again, with the same -o"

    @property
    def status(self) -> Exit:
        """The exit status."""
        if self.interrupted:
            return Exit.TERMINATED if self.terminated else Exit.INTERRUPTED
        if any(one.is_cut_off for one in self.missing):
            return Exit.UNKNOWN
        return Exit.FINISHED if self.ok else Exit.FAILED


def _sizes(missing: Sequence[MissedFile]) -> str:
    """Return how many bytes are missing, and how many of their results are here."""
    size, here = sum(one.size for one in missing), sum(one.here for one in missing)
    kept = f" more, {format_size(here)} of them are here" if here else ""
    return f" ({format_size(size - here)}{kept})"
