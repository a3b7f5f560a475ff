"""``dropflow version``: which versions of what are at work."""

from typing import TYPE_CHECKING

import click

from dropflow import __version__
from dropflow.cli.exits import Exit
from dropflow.cli.options import speaks

if TYPE_CHECKING:
    from dropflow.cli.output import Output

__all__ = ["version"]

_LIBRARIES = (
    *("bottle", "click", "cloudpickle", "jsonschema", "msgspec", "numpy", "psutil", "pymetis", "pyzmq", "rich"),
    *("rustworkx", "waitress", "zeroconf"),
)


@click.command("version")
@speaks
def version(output: "Output") -> Exit:
    """Print the versions of dropflow, Python and the libraries below."""
    import platform
    from importlib import metadata

    from dropflow.cli.replies import VersionReply

    output.answer(
        VersionReply(
            dropflow=__version__,
            python=platform.python_version(),
            platform=f"{platform.system()} {platform.machine()}",
            libraries={name: metadata.version(name) for name in _LIBRARIES},
        )
    )
    return Exit.FINISHED
