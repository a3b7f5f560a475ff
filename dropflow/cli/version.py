"""``dropflow version``: the versions of dropflow, Python and the libraries."""

from collections.abc import Iterator

import click
import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.tables import columns
from dropflow.version import __version__

__all__ = ["command"]

_LIBRARIES = (
    *("bottle", "click", "cloudpickle", "jsonschema", "msgspec", "numpy", "psutil", "pymetis", "pyzmq", "rich"),
    *("rustworkx", "waitress", "zeroconf"),
)


class VersionReply(msgspec.Struct, frozen=True, kw_only=True):
    """The versions of dropflow, Python and the libraries."""

    ok: bool = True
    dropflow: str
    python: str
    platform: str
    libraries: dict[str, str]

    def lines(self) -> Iterator[str]:
        """One line each."""
        yield f"dropflow {self.dropflow}, Python {self.python}, {self.platform}"
        yield from columns(list(self.libraries.items()))


@click.command("version")
@output_options
def command(output: CommandOutput) -> Exit:
    """Print the versions of dropflow, Python and the libraries."""
    import platform
    from importlib import metadata

    output.answer(
        VersionReply(
            dropflow=__version__,
            python=platform.python_version(),
            platform=f"{platform.system()} {platform.machine()}",
            libraries={name: metadata.version(name) for name in _LIBRARIES},
        )
    )
    return Exit.FINISHED
