"""Graphs in repositories of git, read by the user's git.

An address is ``git+https://HOST/ORG/REPO@REF#path/in/repository.graph``, also with ``git+ssh``, ``git+file`` and, for
servers in a laboratory, ``git+http``; or that of a page of a file at GitHub or GitLab. One commit is fetched, without
history, into a bare repository in the user's cache: nothing is checked out, so neither hooks nor filters nor links of
the repository do anything. A commit that is named by its 40 digits and is in the cache needs no network.

The token of a private repository is in the environment variable ``DROPFLOW_GIT_TOKEN_<HOST>``, such as
``DROPFLOW_GIT_TOKEN_GITHUB_COM``. Git reads it from there, for addresses of that host only: it is in no argument, file
or message. Other ways to log in are those of the user's git.
"""

import fcntl
import hashlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import msgspec

from dropflow.errors import BadFileError, UsageError
from dropflow.formatting import few
from dropflow.graph.notes import RepositoryNote
from translator.options import ReadOptions

_SCHEMES = ("https", "http", "ssh", "file")
_REF = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_./+-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PAGE = re.compile(r"https://[^/]+/.+?/(?:-/)?(?:blob|raw)/")
_RAW = "raw.githubusercontent.com"
_GIT_SECONDS = 300.0
"""Seconds after which a command of git is stopped."""
_HINT = "give git+https://HOST/ORG/REPO@REF#path/in/repository.graph"


class RepositoryAddress(msgspec.Struct, frozen=True):
    """A repository as git knows it, a branch, tag or commit, and a path in it."""

    url: str
    ref: str
    path: str

    @property
    def is_file(self) -> bool:
        """Whether the path is that of a file, by its ending."""
        return bool(PurePosixPath(self.path).suffix)

    @property
    def shown(self) -> str:
        """The address for people."""
        return f"git+{self.url}@{self.ref}#{self.path}"


class RepositoryFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a repository: where it was read from, its name without the ending, and what is in it."""

    note: RepositoryNote
    name: str
    content: bytes


class GraphList(msgspec.Struct, frozen=True, kw_only=True):
    """The graphs of a repository at a commit: their addresses, by their paths."""

    commit: str
    graphs: Mapping[str, str]


def is_repository_address(text: str) -> bool:
    """Return whether a text is the address of something in a repository, and not the name of a file."""
    return text.startswith(("git+", f"https://{_RAW}/")) or _PAGE.match(text) is not None


def fetch_file(address: str) -> RepositoryFile:
    """Return a file of a repository.

    Raises
    ------
    UsageError
        The address is malformed, or names something that is not allowed.
    BadFileError
        There is no such repository, commit or file, git reports an error, or the file is too large.
    """
    known = parse_address(address)
    if not known.path:
        names = list(list_graphs(address).graphs)
        raise UsageError(
            "the address names a repository and no graph in it",
            where=address,
            hint=f"add # and one of its graphs: {few(names)}" if names else "it has no graphs",
        )
    with _repository(known) as (git, commit):
        listed = git.run("ls-tree", "-z", commit, "--", known.path).rstrip(b"\0").partition(b"\t")[0].decode()
        mode, _, blob = listed.partition(" ")
        if not mode or not blob.startswith("blob ") or mode == "120000":
            what = {"120000": "this is a link", "040000": "this is a directory"}.get(mode, "there is no such file")
            raise BadFileError(f"{what} at commit {commit[:12]}", where=address, hint="name a graph of the repository")
        name = blob.removeprefix("blob ")
        size, limit = int(git.run("cat-file", "-s", name)), ReadOptions().max_bytes
        if size > limit:
            raise BadFileError(f"the file has {size:,} bytes, and {limit:,} are allowed", where=address)
        content = git.run("cat-file", "blob", name)
    return RepositoryFile(
        note=RepositoryNote(
            address=known.shown, commit=commit, digest=hashlib.blake2b(content, digest_size=16).hexdigest()
        ),
        name=PurePosixPath(known.path).stem,
        content=content,
    )


def list_graphs(address: str) -> GraphList:
    """Return the graphs of a repository, or of a directory of it if the address names one.

    Raises
    ------
    UsageError, BadFileError
        As `fetch_file`.
    """
    known = parse_address(address)
    with _repository(known) as (git, commit):
        below = ("--", known.path) if known.path else ()
        names = git.run("ls-tree", "-r", "-z", "--name-only", commit, *below).decode(errors="replace").split("\0")
    graphs = sorted(name for name in names if name.endswith(".graph"))
    return GraphList(commit=commit, graphs={name: RepositoryAddress(known.url, commit, name).shown for name in graphs})


def parse_address(address: str) -> RepositoryAddress:
    """Return the parts of an address.

    Raises
    ------
    UsageError
        It is malformed, or names something that is not allowed.
    """
    text = address if address.startswith("git+") else _of_page(address)
    place, _, path = text.removeprefix("git+").partition("#")
    try:
        parts = urlsplit(place)
        _ = parts.port
    except ValueError as problem:
        raise UsageError(f"this is not an address: {problem}", where=address, hint=_HINT) from None
    if parts.scheme not in _SCHEMES:
        raise UsageError(f"repositories are not read by {parts.scheme or 'nothing'!r}", where=address, hint=_HINT)
    if parts.password is not None or (parts.username and parts.scheme != "ssh"):
        bare = re.sub(r"//[^/]*@", "//", address)
        raise UsageError(
            "an address with a password",
            where=bare,
            hint=f"put it into the environment, as {_variable(parts.hostname)}",
        )
    if (parts.scheme == "file") == bool(parts.netloc) or parts.query or (parts.hostname or "").startswith("-"):
        raise UsageError("this is not an address of a repository", where=address, hint=_HINT)
    where, _, ref = parts.path.partition("@")
    ref = unquote(ref) or "HEAD"
    if not _REF.fullmatch(ref) or ".." in ref or "//" in ref or ref.endswith((".", "/", ".lock")):
        raise UsageError(f"{ref!r} is not a branch, tag or commit", where=address, hint=_HINT)
    path = unquote(path).strip("/")
    if any(part in ("..", ".", "", ".git") for part in path.split("/") if path) or not path.isprintable():
        raise UsageError("the path leaves the repository", where=address, hint="give a path in the repository")
    if where.strip("/") == "" or not where.isprintable():
        raise UsageError("the address names no repository", where=address, hint=_HINT)
    return RepositoryAddress(f"{parts.scheme}://{parts.netloc}{where}", ref, path)


def _of_page(address: str) -> str:
    """Return the address of a file from that of its page at GitHub or GitLab."""
    parts = urlsplit(address)
    pieces = parts.path.strip("/").split("/")
    if parts.netloc == _RAW:
        repository, rest = pieces[:2], pieces[2:]
        rest = rest[2:] if rest[:2] == ["refs", "heads"] else rest
    else:
        mark = next((at for at, piece in enumerate(pieces) if piece in ("blob", "raw") and at > 1), len(pieces))
        repository, rest = [piece for piece in pieces[:mark] if piece != "-"], pieces[mark + 1 :]
    if len(rest) < 2:
        raise UsageError("the page is not that of a file", where=address, hint=_HINT)
    host = "github.com" if parts.netloc == _RAW else parts.netloc
    return f"git+https://{host}/{'/'.join(repository)}@{rest[0]}#{'/'.join(rest[1:])}"


def _variable(host: str | None) -> str:
    """Return the name of the environment variable with the token of a host."""
    return "DROPFLOW_GIT_TOKEN_" + re.sub(r"[^0-9A-Z]", "_", (host or "").upper())


class _Git:
    """The user's git in one bare repository, without questions, programs of the repository and other protocols."""

    def __init__(self, directory: Path, address: RepositoryAddress) -> None:
        self._directory, self._address = directory, address
        parts = urlsplit(address.url)
        self._variable = _variable(parts.hostname)
        self._token = os.environ.get(self._variable, "")
        options = ["gc.auto=0", "core.hooksPath=/dev/null", "protocol.allow=never"]
        options += [f"protocol.{scheme}.allow=always" for scheme in _SCHEMES]
        is_safe = parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1", "::1")
        if self._token and is_safe:
            helper = f'!f() {{ test "$1" = get && echo username=oauth2 && echo "password=${self._variable}"; }}; f'
            server = f"credential.{parts.scheme}://{parts.netloc}.helper"
            options += [f"{server}=", f"{server}={helper}"]  # the first forgets helpers that know another login
        self._options = [piece for option in options for piece in ("-c", option)]

    def run(self, *arguments: str) -> bytes:
        """Return the output of a git command.

        Raises
        ------
        BadFileError
            git is not installed, fails, or takes too long.
        """
        command = ["git", *self._options, "--git-dir", str(self._directory), *arguments]
        environment = {
            "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
            "GIT_HTTP_LOW_SPEED_LIMIT": "1",
            "GIT_HTTP_LOW_SPEED_TIME": "60",
            **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_DIR", "GIT_TRACE"))},
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "true",
            "LC_ALL": "C",
        }
        try:
            done = subprocess.run(  # noqa: S603 - fixed options, and arguments that were checked
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_GIT_SECONDS,
                check=False,
            )
        except FileNotFoundError:
            raise BadFileError(
                "graphs of repositories need git, which is not installed", where=self._address.shown, hint="install git"
            ) from None
        except subprocess.TimeoutExpired:
            raise BadFileError(
                f"git did not end in {_GIT_SECONDS:g} s", where=self._address.shown, hint="try again"
            ) from None
        if done.returncode:
            raise self._error(done.stderr.decode(errors="replace"))
        return done.stdout

    def _error(self, text: str) -> BadFileError:
        """Return the error for what git wrote, without the token."""
        if self._token:
            text = text.replace(self._token, "...")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        reason = next(
            (line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1] if lines else "failed"
        )
        hint = "check the address, and whether git fetch works with it"
        if re.search(r"Authentication|could not read|Permission denied|terminal prompts|\b40[13]\b", text):
            hint = f"for a private repository put a token into the environment, as {self._variable}"
        elif "remote ref" in text:
            hint = "name a branch, a tag, or all 40 digits of a commit"
        return BadFileError(f"git: {reason.removeprefix('fatal: ')}", where=self._address.shown, hint=hint)


@contextmanager
def _repository(address: RepositoryAddress) -> Iterator[tuple[_Git, str]]:
    """Yield git in the cache of a repository, which has the commit that the address means, and that commit."""
    import platformdirs  # noqa: PLC0415 - only graphs of repositories need it

    name = hashlib.blake2b(address.url.encode(), digest_size=12).hexdigest()
    directory = Path(platformdirs.user_cache_dir("dropflow")) / "repositories" / f"{name}.git"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (directory.parent / f"{name}.lock").open("w")
    except OSError as problem:
        raise BadFileError(
            f"the cache of repositories cannot be written: {problem.strerror}", where=str(directory)
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # commands at a time share the cache
        git = _Git(directory, address)
        for stale in directory.glob("*.lock"):  # of a git that was killed: ours is the only one here
            stale.unlink(missing_ok=True)
        if not (directory / "HEAD").exists():
            git.run("init", "--quiet", "--bare")
        yield git, _commit(git, address)


def _commit(git: _Git, address: RepositoryAddress) -> str:
    """Return the commit that an address means, and fetch it unless it is there."""
    if _COMMIT.fullmatch(address.ref):
        try:
            git.run("cat-file", "-e", f"{address.ref}^{{commit}}")
        except BadFileError:
            pass
        else:
            return address.ref
    fetch = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--end-of-options", address.url)
    try:
        git.run(*fetch[:-2], "--depth=1", *fetch[-2:], address.ref)
    except BadFileError as problem:
        if "dumb http" not in problem.text:  # a server of plain files, which gives whole branches only
            raise
        git.run(*fetch, "+HEAD:refs/remote/HEAD", "+refs/heads/*:refs/remote/*", "+refs/tags/*:refs/remote/*")
        known = address.ref if _COMMIT.fullmatch(address.ref) else f"refs/remote/{address.ref}"
        return git.run("rev-parse", "--verify", f"{known}^{{commit}}").decode().strip()
    return git.run("rev-parse", "--verify", "FETCH_HEAD^{commit}").decode().strip()
