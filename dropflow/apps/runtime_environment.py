"""The runtime environment of an application: variables, secrets, modules, a virtual environment, a container.

Applications of commands and Python functions have these fields, which `dropflow.apps.parameters` describes. A function
that has any of them is called in another process (`dropflow.apps.functions.function_elsewhere`), because variables
count when libraries are loaded.

A variable with the value ``secret:NAME`` gets the secret of this name when the attempt begins: from the file of secrets
of the host that runs it, else from a variable of this name of the node manager or of ``dropflow run``. So its value is
in no graph, journal, log or page; where a command prints it, the log has ``***``.
"""

import json
import os
import re
import shlex
import shutil
import stat
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from dropflow.errors import BadParameterError, MissingDependencyError
from dropflow.formatting import few
from dropflow.graph.components import is_empty
from dropflow.graph.templates import Template

RUN_IN, VARIABLES, MODULES, VIRTUAL = ENVIRONMENT_FIELDS = ("run_in", "environment", "modules", "virtual_environment")
"""Names of the fields. Those of application arguments and ports belong to the application itself."""
SECRETS_VARIABLE = "DROPFLOW_SECRETS"
"""Environment variable with the path of the file of secrets."""

_SECRET = "secret:"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MODULE = re.compile(r"[\w./+:-]+")
_INITS = ("/etc/profile.d/lmod.sh", "/etc/profile.d/modules.sh", "/usr/share/modules/init/bash")
_LOAD = """\
type module > /dev/null 2>&1 || for init in "${{LMOD_PKG:-/}}/init/bash" "${{MODULESHOME:-/}}/init/bash" {inits}; do
  if [ -r "$init" ]; then . "$init"; break; fi
done
module load {names} || {{ echo "the modules {names} cannot be loaded" >&2; exit 125; }}
"""
_ACTIVATE = """\
export {variable}={path} PATH={path}/bin:"$PATH"
unset PYTHONHOME
for script in {path}/etc/conda/activate.d/*.sh; do if [ -r "$script" ]; then . "$script"; fi; done
"""


class RuntimeEnvironment(NamedTuple):
    """The runtime environment of one node, from its fields.

    Attributes
    ----------
    run_in : str
        Image of a container; empty for none.
    variables : dict of str to str
        Variables of the environment.
    modules : tuple of str
        Modules to load.
    virtual : str
        Directory of a virtual or conda environment; empty for none.
    """

    run_in: str
    variables: Mapping[str, str]
    modules: tuple[str, ...]
    virtual: str

    @classmethod
    def of(cls, template: Template) -> "RuntimeEnvironment":
        """Return those of a node.

        Raises
        ------
        BadParameterError
            A field cannot be used.
        """
        given = {name: _field(template, name) for name in ENVIRONMENT_FIELDS}
        environment = cls(given[RUN_IN], _variables(given[VARIABLES]), _modules(given[MODULES]), given[VIRTUAL])
        if environment.virtual and not Path(environment.virtual).is_absolute():
            raise _unusable(VIRTUAL, environment.virtual, "the absolute path of a directory")
        if environment.run_in and (environment.modules or environment.virtual):
            raise BadParameterError(
                f"'{RUN_IN}' and '{MODULES if environment.modules else VIRTUAL}' are both given: "
                "an image has its programs",
                fields=(RUN_IN,),
                hint="leave one of them empty",
            )
        return environment

    @property
    def are_plain(self) -> bool:
        """Whether no field is given."""
        return not any(self)

    @property
    def is_own(self) -> bool:
        """Whether Python is that of this process."""
        return not (self.run_in or self.modules or self.virtual)

    @property
    def needs(self) -> tuple[str, ...]:
        """Needs from a host, besides an image."""
        names = (text.removeprefix(_SECRET) for text in self.variables.values() if text.startswith(_SECRET))
        return (
            *(f"secret:{name}" for name in names),
            *(["modules:"] if self.modules else []),
            *([f"virtual:{self.virtual}"] if self.virtual else []),
        )

    @property
    def prelude(self) -> str:
        """Shell code that runs before the command."""
        path, names = shlex.quote(self.virtual), " ".join(self.modules)
        is_conda = Path(self.virtual, "conda-meta").is_dir()
        text = _LOAD.format(names=names, inits=" ".join(_INITS)) if names else ""
        if self.virtual:
            text += _ACTIVATE.format(variable="CONDA_PREFIX" if is_conda else "VIRTUAL_ENV", path=path)
        return text

    def values(self) -> dict[str, str]:
        """Return the variables, with secrets.

        Raises
        ------
        MissingDependencyError
            A secret is not known here.
        """
        return {
            name: secret(text.removeprefix(_SECRET)) if text.startswith(_SECRET) else text
            for name, text in self.variables.items()
        }

    def secrets(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return those of the variables in `values` that are secrets."""
        return {name: values[name] for name, text in self.variables.items() if text.startswith(_SECRET)}


def refuse_unsupported(template: Template, supported: Collection[str]) -> None:
    """Raise if a node has fields that its application does not use.

    Raises
    ------
    BadParameterError
        Names the fields.
    """
    lost = [name for name in ENVIRONMENT_FIELDS if name not in supported and _field(template, name)]
    if lost:
        raise BadParameterError(
            f"'{template.name}' has {few(lost)}, which its application cannot use",
            fields=tuple(lost),
            where=template.name,
            hint="only Python functions and commands can; streams, MPI jobs and services have no containers",
        )


def secret(name: str) -> str:
    """Return a secret of this host.

    Raises
    ------
    MissingDependencyError
        It is not known here, or others may read its file.
    """
    path = Path(os.environ.get(SECRETS_VARIABLE) or Path.home() / ".config" / "dropflow" / "secrets")
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        mode, text = 0, ""
    except (OSError, ValueError) as error:
        raise MissingDependencyError(
            f"the secret '{name}' cannot be read: {getattr(error, 'strerror', None) or 'the file is not text'}",
            where=str(path),
            hint="correct the file of secrets",
            of_host=True,
        ) from None
    if stat.S_IMODE(mode) & 0o077:
        raise MissingDependencyError(
            f"the secret '{name}' is not used: other users may read its file",
            where=str(path),
            hint=f"chmod 600 {path}",
            of_host=True,
        )
    lines = (line.partition("=") for line in text.splitlines() if not line.lstrip().startswith("#"))
    known = {key.strip(): value.strip() for key, _, value in lines}
    if content := known.get(name) or os.environ.get(name, ""):
        return content
    raise MissingDependencyError(
        f"the secret '{name}' is not known on this host",
        hint=f"add the line {name}=... to {path} (mode 600), or set the variable {name} where dropflow runs",
        of_host=True,
    )


def refuse_unmet_need(kind: str, name: str) -> None:
    """Raise if this host lacks a need of `RuntimeEnvironment.needs`.

    Raises
    ------
    MissingDependencyError
        It does.
    """
    if kind == "secret":
        secret(name)
    elif kind == "virtual" and not Path(name, "bin").is_dir():
        raise MissingDependencyError(
            f"there is no virtual or conda environment at {name}",
            hint="make it on each host that runs the node, or correct the field 'virtual_environment'",
            of_host=True,
        )
    elif kind == "modules" and not _has_modules():
        raise MissingDependencyError(
            "there is no command 'module' on this host",
            hint="install Lmod or Environment Modules, or run dropflow where they are",
            of_host=True,
        )


def _has_modules() -> bool:
    homes = [Path(os.environ[name], "init", "bash") for name in ("LMOD_PKG", "MODULESHOME") if os.environ.get(name)]
    known = {"BASH_ENV", "BASH_FUNC_module%%", "BASH_FUNC_module()"} & os.environ.keys()
    return bool(known or shutil.which("module")) or any(path.exists() for path in (*homes, *map(Path, _INITS)))


def hidden_in(write: Callable[[bytes], object], secrets: Collection[str]) -> Callable[[bytes], object]:
    """Return a function that writes lines without secrets: they are replaced by ``***``. An empty block is the end."""
    words = sorted((word.encode() for text in secrets for word in text.splitlines() if word), key=len, reverse=True)
    if not words:
        return write
    pattern = re.compile(b"|".join(map(re.escape, words)))
    longest = len(words[0])
    kept = b""

    def hide(block: bytes) -> None:
        # The end of a block may be the beginning of a secret: it waits for the next one.
        nonlocal kept
        text = kept + block
        limit = max(len(text) - longest + 1, 0) if block else len(text)
        pieces, place = [], 0
        for match in pattern.finditer(text):
            if match.start() >= limit:
                break
            pieces += [text[place : match.start()], b"***"]
            place = match.end()
        kept = text[max(place, limit) :]
        pieces.append(text[place:limit])
        if shown := b"".join(pieces):
            write(shown)

    return hide


def _field(template: Template, name: str) -> str:
    argument = template.argument(name)
    if argument is None or argument.is_port or argument.parameter_type == "ApplicationArgument":
        return ""
    value = argument.value
    if is_empty(value):
        return ""
    return value.strip() if isinstance(value, str) else json.dumps(value)


def _variables(text: str) -> dict[str, str]:
    try:
        variables = json.loads(text or "{}")
    except ValueError:
        variables = None
    if not isinstance(variables, dict):
        raise _unusable(VARIABLES, text, 'a JSON object such as {"LEVEL": "2", "TOKEN": "secret:TOKEN"}')
    for name, value in variables.items():
        if not _NAME.fullmatch(name) or not isinstance(value, str | int | float) or "\0" in str(value):
            raise _unusable(VARIABLES, name, "names of letters, digits and underscores, with texts or numbers")
    return {name: str(value) for name, value in variables.items()}


def _modules(text: str) -> tuple[str, ...]:
    names = tuple(text.replace(",", " ").split())
    for name in names:
        if not _MODULE.fullmatch(name) or name.startswith("-"):
            raise _unusable(MODULES, name, "names of modules, such as gcc/12 casacore")
    return names


def _unusable(field: str, value: str, expected: str) -> BadParameterError:
    return BadParameterError(f"parameter '{field}' is {value[:60]!r}, expected {expected}", fields=(field,))
