"""``dropflow palette``: write the palettes for EAGLE and the reference of components."""

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from dropflow.cli.common_options import output_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput
from dropflow.errors import UsageError
from dropflow.formatting import plural


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
def build(output: CommandOutput, *, code: str, target: str | None, only_check: bool, directory: str | None) -> Exit:
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
    from palettes.build import built_files, components

    left_out: tuple[str, ...] = ()
    if code:
        name, content, count, left_out = _own_palette(code, Path(target).stem if target else "")
        wanted = {Path(target) if target else Path(directory or ".") / f"{name}.palette": content}
    else:
        into = Path(directory) if directory else Path(palettes.__file__).parent
        wanted = {into / name: content for name, content in built_files().items()}
        count = len(components())
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

        package = components_of(code)
        nodes = [node_of(component, f"{package.name}/{place}") for place, component in package.components.items()]
        told, own = package.told, package.name
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
