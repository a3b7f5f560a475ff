"""Jobs that copy contents of other nodes, to hold them for their owners."""

import logging
from collections.abc import Callable, Mapping, Sequence

from dropflow.engine.api import Handle
from dropflow.errors import DropflowError
from dropflow.exception_text import summary_of
from managers.messages import Content
from managers.node.content_exchange import ContentExchange
from managers.node.fetch_pool import FetchJob, JobPool

__all__ = ["CopyJobs", "OnCopied"]

_log = logging.getLogger(__name__)

_JOBS = 4
"""Jobs for the contents of one message: small contents wait for the network most of the time."""

RecordCopy = Callable[[int, Handle, str, tuple[int, ...]], None]
OnCopied = Callable[[Mapping[int, Handle], Mapping[int, str]], None]
"""Takes copies by row, and why contents could not be copied; in any thread, once for each job."""


class CopyJobs:
    """Copies contents in a pool.

    Parameters
    ----------
    contents : ContentExchange
        Fetches single contents.
    pool : JobPool
        Carries out the jobs.
    is_stopping : callable
        Whether fetches are to be given up.
    record : callable
        Records a copy on the disk: row, content, owner, and stamp if it is the owner's own file.
    """

    def __init__(
        self, contents: ContentExchange, pool: JobPool, is_stopping: Callable[[], bool], record: RecordCopy
    ) -> None:
        self._contents = contents
        self._record = record
        self._pool = pool
        self._is_stopping = is_stopping

    def take(self, peer: str, contents: Sequence[Content], on_done: OnCopied) -> None:
        """Begin to copy contents of `peer`. For any thread."""
        for start in range(min(_JOBS, len(contents))):
            self._pool.submit(peer, self._job(peer, contents[start::_JOBS], on_done))

    def _job(self, peer: str, contents: Sequence[Content], on_done: OnCopied) -> FetchJob:
        taken: dict[int, Handle] = {}
        failed: dict[int, str] = {}
        for content in contents:
            try:
                fetch = self._contents.fetch_copy(content, self._is_stopping)
                size = content.handle.size if self._contents.needs_fetching(content) else None
                copy = yield from self._contents.receipts.receiving(peer, size, fetch)
                is_shared = bool(content.stamp) and copy.location == content.handle.location
                self._record(content.drop, copy, peer, content.stamp if is_shared else ())
                taken[content.drop] = copy
            except DropflowError as error:
                failed[content.drop] = str(error)
            except Exception as error:  # noqa: BLE001 - without an answer the session would wait without end
                _log.exception("a content of node %s could not be copied", peer)
                failed[content.drop] = summary_of(error)
        on_done(taken, failed)
