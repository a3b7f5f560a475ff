"""What a wheel has besides its packages: manual pages, and completion for bash, zsh and fish.

pip copies them below ``share`` of the environment, where ``man`` looks for them if the ``bin`` beside it is in PATH.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_COMPLETION = {
    "bash": "share/bash-completion/completions/dropflow",
    "zsh": "share/zsh/site-functions/_dropflow",
    "fish": "share/fish/vendor_completions.d/dropflow.fish",
}


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg] # hatchling tells it what is built
    """Writes the files into a directory that `finalize` removes."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files to a wheel; an editable installation and an archive of the sources have none of them."""
        if self.target_name != "wheel" or version == "editable":
            return
        sys.path.insert(0, self.root)
        from click import Group
        from click_man.core import write_man_pages

        from dropflow.cli.completion import completion_script
        from dropflow.cli.main import commands, load_command

        self._directory = tempfile.TemporaryDirectory()
        folder = Path(self._directory.name)
        loaded = {name: load_command(name) for name in commands.commands}
        for name, command in loaded.items():  # click-man would cut the first sentence at 45 characters
            command.short_help = commands.commands[name].help
        whole = Group(
            "dropflow", loaded, help=commands.help, short_help=self.metadata.core.description, params=commands.params
        )
        write_man_pages("dropflow", whole, version=self.metadata.version, target_dir=folder)
        shared = {str(page): f"share/man/man1/{page.name}" for page in folder.iterdir()}
        for shell, place in _COMPLETION.items():
            script = folder / shell
            script.write_text(completion_script(shell), encoding="utf-8")
            shared[str(script)] = place
        build_data["shared_data"] |= shared

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the directory."""
        del version, build_data, artifact_path
        if directory := getattr(self, "_directory", None):
            directory.cleanup()
