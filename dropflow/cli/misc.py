"""``dropflow keys``, ``palette`` and ``completion``."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import click
import msgspec

from dropflow.cli.common_options import output_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput
from dropflow.errors import UsageError
from dropflow.formatting import MEMORY, format_size, plural, quantity

if TYPE_CHECKING:
    from dropflow.reuse.store import ResultStore, StoreUse

_file_option = click.option(
    "--key", "file", metavar="FILE", help="The key file; in the user's configuration by default."
)


class KeyReply(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a cluster key and the fingerprint of the key; never the key."""

    ok: bool = True
    key: str
    fingerprint: str
    made: bool

    def lines(self) -> Iterator[str]:
        """The fingerprint and the file."""
        yield f"cluster key {self.fingerprint}"
        yield f"  {'made' if self.made else 'in'} {self.key}"
        if self.made:
            yield "  copy this file to the same place on every host of the cluster, for example with scp -p"


@click.group("keys")
def keys_command() -> None:
    """The cluster key, which all managers of a cluster share.

    Make it once, and copy the file to the other hosts, for example with scp -p. Only its owner can read it (mode 0600),
    and no command prints the key.
    """


@keys_command.command("create")
@output_options
@_file_option
def create_key(output: CommandOutput, *, file: str | None) -> Exit:
    """Make a cluster key. An existing key is not overwritten."""
    from dropflow.cli.manager_records import default_key
    from managers.keys import create

    path = Path(file) if file else default_key()
    output.answer(KeyReply(key=str(path), fingerprint=create(path).fingerprint, made=True))
    return Exit.FINISHED


@keys_command.command("show")
@output_options
@_file_option
def show_key(output: CommandOutput, *, file: str | None) -> Exit:
    """Show the fingerprint of the cluster key, to compare the keys of two hosts; never the key."""
    from dropflow.cli.manager_records import default_key
    from managers.keys import load

    path = Path(file) if file else default_key()
    output.answer(KeyReply(key=str(path), fingerprint=load(path).fingerprint, made=False))
    return Exit.FINISHED


# ``dropflow palette``: write the palettes for EAGLE and the reference of components.


class PaletteReply(msgspec.Struct, frozen=True, kw_only=True):
    """The generated files that were written or are out of date, and what could not be drawn: place and reason."""

    ok: bool
    written: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    components: int = 0
    left_out: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """One line per file, and one for each reason."""
        for path in self.written:
            yield f"wrote {path}"
        for path in self.stale:
            yield f"out of date: {path} (run dropflow palette build)"
        if not self.written and not self.stale:
            yield f"up to date: {plural(self.components, 'component')}"
        yield from self.left_out


@click.group("palette")
def palette_command() -> None:
    """Palettes of components for EAGLE."""


@palette_command.command("build")
@output_options
@click.argument("code", default="", metavar="[PACKAGE|FILE|DIRECTORY]")
@click.option("-o", "target", default=None, metavar="FILE", help="Where the palette of own code is written.")
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit status 1 if a file is out of date.")
@click.option(
    "--into",
    "directory",
    default=None,
    metavar="DIR",
    help="Write into DIR instead of the palettes package.",
)
@click.option("--docs", "page", default=None, metavar="FILE", help="Also write the reference page of components.")
def build(
    output: CommandOutput, *, code: str, target: str | None, only_check: bool, directory: str | None, page: str | None
) -> Exit:
    """Write a palette of one's own code, or without an argument the palettes of dropflow.

    PACKAGE is a package or module that is installed, and FILE.py a Python file. Both are imported. Their nodes are the
    entry points dropflow.components of the package, otherwise its public functions, classes and applications, with
    names, types, defaults and docstrings. The nodes of a FILE or DIRECTORY of sources with EAGLE_START in doxygen
    comments, in Python or C, are those that the comments describe; these are only read. What cannot be drawn is listed
    with its line.

    The palettes of dropflow are builtin.palette (components), template.palette (constructs and templates) and
    radio.palette.
    """
    import palettes
    from palettes.build import built_files, component_page, components

    left_out: tuple[str, ...] = ()
    if code:
        name, content, count, left_out = _own_palette(code, Path(target).stem if target else "")
        wanted = {Path(target) if target else Path(directory or ".") / f"{name}.palette": content}
    else:
        into = Path(directory) if directory else Path(palettes.__file__).parent
        wanted = {into / name: content for name, content in built_files().items()}
        count = len(components())
    if page:
        wanted[Path(page)] = component_page().encode()
    stale = [path for path, content in wanted.items() if not path.is_file() or path.read_bytes() != content]
    if not only_check:
        for path in stale:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wanted[path])
    names = tuple(str(path) for path in stale)
    output.answer(
        PaletteReply(
            ok=not (only_check and stale),
            written=() if only_check else names,
            stale=names if only_check else (),
            components=count,
            left_out=left_out,
        )
    )
    return Exit.FAILED if only_check and stale else Exit.FINISHED


def _own_palette(code: str, name: str) -> tuple[str, bytes, int, tuple[str, ...]]:
    """Return name, bytes and number of nodes of the palette of a package or of files, and what could not be drawn.

    Raises
    ------
    UsageError
        There is nothing to draw.
    """
    from palettes.build import node_of, palette
    from palettes.doxygen import described_nodes

    path = Path(code)
    described = described_nodes(path) if path.exists() else None
    if described is not None and (described.nodes or described.told or path.suffix != ".py"):
        nodes, told, own = list(described.nodes), described.told, path.resolve().stem
    else:
        from dropflow.builder.components import components_of

        found = components_of(code)
        nodes = [node_of(component, f"{found.name}/{place}") for place, component in found.components.items()]
        told, own = found.told, found.name
    if not nodes:
        raise UsageError(
            f"{code} has nothing to draw" + (f": {told[0]}" if told else ""),
            hint="define a public function with types and a docstring, or describe a node between EAGLE_START and "
            "EAGLE_END in a comment",
        )
    name = name or own
    return name, palette(name, f"components of {own}.", nodes, of=own), len(nodes), told


@palette_command.command("init")
@output_options
@click.argument("directory")
def init(output: CommandOutput, *, directory: str) -> Exit:
    """Write a small package with one component into DIRECTORY, with a test, an entry point and a README."""
    from palettes.new_package import create_package

    written = create_package(Path(directory))
    output.answer(PaletteReply(ok=True, written=tuple(map(str, written)), components=1))
    return Exit.FINISHED


# ``dropflow cache``: the store of results.

_store_option = click.option(
    "--store", default="", metavar="DIR", help="The store; by default that of DROPFLOW_STORE, or ~/.cache/dropflow."
)


class CacheReply(msgspec.Struct, frozen=True, kw_only=True):
    """A store, and what a command has removed from it. Sizes are in bytes."""

    ok: bool = True
    store: str
    use: "StoreUse"

    def lines(self) -> Iterator[str]:
        """What was removed, and what is there."""
        use = self.use
        if use.removed_contents or use.removed_records:
            removed = f"{plural(use.removed_contents, 'content')} and {plural(use.removed_records, 'record')}"
            yield f"removed {removed}, {format_size(use.removed_size)}"
        yield from (f"  damaged: {digest}" for digest in use.damaged)
        there = f"{plural(use.records, 'record')} of results, {plural(use.contents, 'content')}"
        yield f"{self.store}: {there}, {format_size(use.size)}"


@click.group("cache")
def cache_command() -> None:
    """The store of results that 'dropflow run --reuse' takes and adds to.

    It is in ~/.cache/dropflow, or where DROPFLOW_STORE or --store say. After a run, the results that were not used for
    longest are removed above 20 GiB, or the number of bytes in DROPFLOW_STORE_LIMIT. A node has the store of its user.
    """


@cache_command.command("info")
@output_options
@_store_option
def show_cache(output: CommandOutput, *, store: str) -> Exit:
    """Show how many results are in the store, and their size."""
    return _answer_cache(output, store, lambda found: found.use())


@cache_command.command("verify")
@output_options
@_store_option
def verify_cache(output: CommandOutput, *, store: str) -> Exit:
    """Read all contents, and remove those that are damaged. They are computed again when they are needed."""
    return _answer_cache(output, store, lambda found: found.verify())


@cache_command.command("prune")
@output_options
@_store_option
@click.option("--limit", default="0", show_default=True, metavar="SIZE", help="What is left at most, such as 5 GiB.")
def prune_cache(output: CommandOutput, *, store: str, limit: str) -> Exit:
    """Remove results, those that were not used for longest first, until the store has the size of --limit."""
    size = quantity(limit, MEMORY)
    if size is None or size < 0:
        raise UsageError(f"{limit!r} is not a size", where="--limit", hint="give a number of bytes, or such as 5 GiB")
    return _answer_cache(output, store, lambda found: found.prune(int(size)))


def _answer_cache(output: CommandOutput, store: str, work: "Callable[[ResultStore], StoreUse]") -> Exit:
    from dropflow.reuse.store import ResultStore, store_directory

    found = ResultStore(store_directory(store))
    output.answer(CacheReply(store=str(found.directory), use=work(found)))
    return Exit.FINISHED


# ``dropflow completion``: a script that completes commands in a shell.
#
# The script calls ``dropflow`` with ``_DROPFLOW_COMPLETE`` in its environment; click then prints
# candidates, a kind and a value each. The kind ``graph`` is a path, which the shell quotes and
# continues below directories.

Shell = Literal["bash", "zsh", "fish"]

_SCRIPTS: dict[str, str] = {
    "bash": r"""_dropflow_completion() {
    local IFS=$'\n' line kind value
    local current=${COMP_WORDS[COMP_CWORD]}
    COMPREPLY=()
    while read -r line; do
        kind=${line%%,*} value=${line#*,}
        case $kind in
            dir|file) compopt -o default ;;
            graph) COMPREPLY+=("${value%/}"); compopt -o filenames ;;
            *) COMPREPLY+=("$value"); [[ $value == *= ]] && compopt -o nospace ;;
        esac
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _DROPFLOW_COMPLETE=bash_complete "$1" 2>/dev/null)
    return 0
}
complete -o nosort -F _dropflow_completion dropflow
""",
    "zsh": r"""#compdef dropflow
_dropflow_completion() {
    local -a lines plain described
    local kind value help
    (( $+commands[dropflow] )) || return 1
    lines=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \
        _DROPFLOW_COMPLETE=zsh_complete dropflow 2>/dev/null)}")
    for kind value help in "${lines[@]}"; do
        case $kind in
            dir) _path_files -/ ;;
            file) _path_files -f ;;
            graph) compadd -f -U -S '' -- "$value" ;;
            plain) [[ $help == _ ]] && plain+=("$value") || described+=("$value:$help") ;;
        esac
    done
    (( $#described )) && _describe -V dropflow described -U
    (( $#plain )) && compadd -U -V dropflow -a plain
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _dropflow_completion "$@"
else
    compdef _dropflow_completion dropflow
fi
""",
    "fish": r"""function _dropflow_completion
    set -lx _DROPFLOW_COMPLETE fish_complete
    set -lx COMP_WORDS (commandline -cp)
    set -lx COMP_CWORD (commandline -t)
    set -l candidates (dropflow 2>/dev/null)
    for candidate in $candidates
        set -l parts (string split -m 1 "," -- $candidate)
        switch $parts[1]
            case dir
                __fish_complete_directories $parts[2]
            case file
                __fish_complete_path $parts[2]
            case '*'
                echo $parts[2]
        end
    end
end
complete --no-files --command dropflow --arguments "(_dropflow_completion)"
""",
}


def completion_script(shell: str) -> str:
    """Return the script that completes commands in a shell: bash, zsh or fish."""
    return _SCRIPTS[shell]


class CompletionReply(msgspec.Struct, frozen=True, kw_only=True):
    """The script for one shell."""

    ok: bool = True
    shell: str
    script: str

    def lines(self) -> Iterator[str]:
        """The script."""
        yield from self.script.splitlines()


@click.command("completion")
@output_options
@click.argument("shell", type=click.Choice(list(get_args(Shell))))
def completion_command(output: CommandOutput, *, shell: str) -> Exit:
    """Print a script that completes commands in SHELL.

    It completes commands, options, files of graphs, parameters of --set, runs, sessions, drops, nodes and algorithms.
    Names of sessions, drops and nodes are asked from the manager that the command would use; one that does not answer
    in a second and a half is left out.

    In ~/.bashrc:  eval "$(dropflow completion bash)"

    In ~/.zshrc:   eval "$(dropflow completion zsh)"

    For fish:      dropflow completion fish > ~/.config/fish/completions/dropflow.fish
    """
    output.answer(CompletionReply(shell=shell, script=completion_script(shell)))
    return Exit.FINISHED
