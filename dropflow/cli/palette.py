"""``dropflow palette``: the palettes for EAGLE and the reference of components, from the components' definitions."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.exits import Exit
from dropflow.cli.options import speaks

if TYPE_CHECKING:
    from dropflow.cli.output import Output

__all__ = ["palette"]


@click.group("palette")
def palette() -> None:
    """Palettes of components for EAGLE."""


@palette.command("build")
@speaks
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit status 1 if a file is out of date.")
@click.option(
    "--into",
    "directory",
    default=None,
    metavar="DIR",
    help="Write into DIR instead of the palettes package.",
)
@click.option("--docs", "page", default=None, metavar="FILE", help="Write the reference page of components, too.")
def build(output: "Output", *, only_check: bool, directory: str | None, page: str | None) -> Exit:
    """Write builtin.palette (components that run) and template.palette (constructs and templates)."""
    from pathlib import Path

    import palettes
    from dropflow.cli.replies import PaletteReply
    from palettes.build import built_files, component_page, components

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
