"""``dropflow palette``: write the palettes for EAGLE and the reference of components."""

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import output_options
from dropflow.cli.output import CommandOutput
from dropflow.formatting import plural

__all__ = ["command"]


class PaletteReply(msgspec.Struct, frozen=True, kw_only=True):
    """The generated files that were written or are out of date."""

    ok: bool
    written: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    components: int = 0

    def lines(self) -> Iterator[str]:
        """One line per file."""
        for path in self.written:
            yield f"wrote {path}"
        for path in self.stale:
            yield f"out of date: {path} (run dropflow palette build)"
        if not self.written and not self.stale:
            yield f"up to date: {plural(self.components, 'component')}"


@click.group("palette")
def command() -> None:
    """Palettes of components for EAGLE."""


@command.command("build")
@output_options
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit status 1 if a file is out of date.")
@click.option(
    "--into",
    "directory",
    default=None,
    metavar="DIR",
    help="Write into DIR instead of the palettes package.",
)
@click.option("--docs", "page", default=None, metavar="FILE", help="Also write the reference page of components.")
def build(output: CommandOutput, *, only_check: bool, directory: str | None, page: str | None) -> Exit:
    """Write builtin.palette (components that run) and template.palette (constructs and templates)."""
    import palettes
    from palettes.from_components import built_files, component_page, components

    into = Path(directory) if directory else Path(palettes.__file__).parent
    wanted = {into / name: content for name, content in built_files().items()}
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
            components=len(components()),
        )
    )
    return Exit.FAILED if only_check and stale else Exit.FINISHED
