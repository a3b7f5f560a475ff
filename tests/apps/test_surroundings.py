"""Variables, secrets, modules and virtual environments of commands and functions, and functions in other processes."""

import venv
from pathlib import Path
from typing import Any

import pytest

from dropflow.apps.component_findings import check
from dropflow.apps.needs import refuse_need
from dropflow.apps.surroundings import SECRETS_VARIABLE, Surroundings, hidden_in
from dropflow.errors import BadParameterError, MissingDependencyError
from dropflow.graph.templates import Argument, Kind, Template
from dropflow.testing.attempts import Attempted, Given, try_app

BASH = "dlg.apps.bash_shell_app.BashShellApp"
FUNCTION = "dlg.apps.pyfunc.PyFuncApp"


def _run(component: str, directory: Path, *, inputs: Any = (), outputs: Any = ("out",), **fields: Any) -> Attempted:
    arguments = [Argument(name=name, value=value) for name, value in fields.items()]
    return try_app(component, directory, inputs=[Given(*each) for each in inputs], outputs=outputs, fields=arguments)


def _template(component: str = BASH, **fields: Any) -> Template:
    arguments = tuple(Argument(name=name, value=value) for name, value in {"command": "true", **fields}.items())
    return Template(key="k", name="n", kind=Kind.APP, component=component, arguments=arguments)


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of secrets of this host."""
    path = tmp_path / "secrets"
    path.write_text("# of the archive\nTOKEN = quite-a-long-token\n", encoding="utf-8")
    path.chmod(0o600)
    monkeypatch.setenv(SECRETS_VARIABLE, str(path))
    return path


def test_a_command_gets_variables_and_secrets_and_its_log_has_no_secret(secrets: Path, tmp_path: Path) -> None:
    """The output has the values; the log and the error have stars in place of the secret."""
    variables = '{"LEVEL": 2, "KEY": "secret:TOKEN"}'
    got = _run(BASH, tmp_path, command='echo "$LEVEL $KEY" > {out}; echo "uses $KEY"', environment=variables)
    failed = _run(BASH, tmp_path / "2", command='echo "lost $KEY"; exit 3', environment=variables)

    assert got.contents == [b"2 quite-a-long-token\n"]
    assert "uses ***" in got.log
    assert "lost ***" in failed.log
    assert "quite-a" not in got.log + failed.log + failed.failure.text + failed.failure.detail
    assert secrets.exists()


def test_a_secret_that_is_not_there_or_can_be_read_by_others_is_refused(secrets: Path) -> None:
    """Before anything runs: the error names the secret, its file, and what to do."""
    (needed,) = Surroundings.of(_template(environment='{"KEY": "secret:TOKEN"}')).needs
    refuse_need(needed)
    with pytest.raises(MissingDependencyError, match="the secret 'OTHER' is not known on this host"):
        refuse_need("secret:OTHER")

    secrets.chmod(0o644)

    with pytest.raises(MissingDependencyError, match="other users may read its file") as caught:
        refuse_need(needed)
    assert caught.value.where == str(secrets)


def test_secrets_that_are_split_between_blocks_are_hidden() -> None:
    """What a program writes arrives in blocks of any size."""
    seen: list[bytes] = []
    write = hidden_in(seen.append, ["token", "token-2"])
    for block in (b"a to", b"ken", b"-2 b t", b"oken c", b""):
        write(block)
    assert b"".join(seen) == b"a *** b *** c"


def test_modules_are_loaded_before_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the shell function of Environment Modules; one that is not there fails the drop."""
    home = tmp_path / "modules"
    (home / "init").mkdir(parents=True)
    (home / "init" / "bash").write_text('module() { [ "$2" != absent ] && export LOADED="$*"; }\n', encoding="utf-8")
    monkeypatch.setenv("MODULESHOME", str(home))
    monkeypatch.delenv("LMOD_PKG", raising=False)
    refuse_need("modules:")

    got = _run(BASH, tmp_path, command="echo $LOADED > {out}", modules="gcc/12, casacore")
    failed = _run(BASH, tmp_path / "2", command="true", modules="absent")

    assert got.contents == [b"load gcc/12 casacore\n"]
    assert "the modules absent cannot be loaded" in failed.log


def test_a_function_runs_with_the_python_of_a_virtual_environment(tmp_path: Path) -> None:
    """Its value comes back, and what it prints is in the drop's log; the environment needs no dropflow."""
    path = tmp_path / "env"
    venv.create(path, with_pip=False)
    code = "import sys\ndef where(x, factor=2):\n    print('here')\n    return [sys.prefix, x * factor]\n"

    got = _run(
        FUNCTION,
        tmp_path,
        func_name="where",
        func_code=code,
        inputs=[("x", "ab")],
        virtual_environment=str(path),
    )

    assert got.values == [[str(path), "abab"]]
    assert "here" in got.log


def test_a_function_with_variables_runs_in_a_process_that_begins_with_them(secrets: Path, tmp_path: Path) -> None:
    """So that libraries read them when they are loaded. Its exception is that of the drop, without secrets."""
    code = "import os\nKEY = os.environ['KEY']\ndef fail():\n    raise LookupError('no ' + KEY)\n"

    got = _run(FUNCTION, tmp_path, func_name="fail", func_code=code, environment='{"KEY": "secret:TOKEN"}')

    assert "LookupError: no ***" in got.failure.text
    assert "line 4, in fail" in got.log
    assert "quite-a" not in got.log + got.failure.text + got.failure.detail
    assert secrets.exists()


def test_fields_of_the_environment_are_checked_before_anything_runs(tmp_path: Path) -> None:
    """Unreadable values, an environment that is not there, and components that cannot have one."""
    for field, value, text in (
        ("environment", "LEVEL=2", "expected a JSON object"),
        ("environment", '{"A B": "c"}', "names of letters"),
        ("modules", "gcc;rm", "expected names of modules"),
        ("virtual_environment", "env", "expected the absolute path"),
    ):
        with pytest.raises(BadParameterError, match=text):
            Surroundings.of(_template(**{field: value}))
    with pytest.raises(MissingDependencyError, match="no virtual or conda environment at"):
        refuse_need(f"virtual:{tmp_path}")
    (found,) = check([_template("dlg.apps.simple.CopyApp", environment='{"A": "b"}')], [])
    assert "environment" in found.text
    assert "cannot use" in found.text


def test_an_application_argument_of_such_a_name_stays_an_argument(tmp_path: Path) -> None:
    """Functions of the community have arguments called environment or modules."""
    name = Argument(name="environment", value="lab", parameter_type="ApplicationArgument")
    code = "import os\ndef tell(environment):\n    return environment, os.getpid()\n"
    fields = [name, Argument(name="func_name", value="tell"), Argument(name="func_code", value=code)]

    got = try_app(FUNCTION, tmp_path, outputs=("out",), fields=fields)

    assert got.values[0][0] == "lab"
