"""``dropflow completion``: a script that completes commands in a shell.

The script calls ``dropflow`` with ``_DROPFLOW_COMPLETE`` in its environment; click then prints candidates
(`dropflow.cli.candidates`), a kind and a value each. The kind ``graph`` is a path, which the shell quotes and continues
below directories.
"""

from collections.abc import Iterator
from typing import Literal, get_args

import click
import msgspec

from dropflow.cli.common_options import output_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput

Shell = Literal["bash", "zsh", "fish"]

_SCRIPTS: dict[str, str] = {
    "bash": r"""_dropflow_completion() {
    local IFS=$'\n' line kind value words=() rest=$COMP_LINE at
    COMPREPLY=()
    # Bash also divides words at ':' and '='. It puts what is completed in the place of the last part only.
    for ((at = 0; at <= COMP_CWORD; at++)); do
        [[ $at -eq 0 || $rest == [[:space:]]* ]] && words+=("")
        rest=${rest#"${rest%%[![:space:]]*}"}
        words[-1]+=${COMP_WORDS[at]}
        rest=${rest#"${COMP_WORDS[at]}"}
    done
    local before=${words[-1]%"${COMP_WORDS[COMP_CWORD]#[:=]}"}
    while read -r line; do
        kind=${line%%,*} value=${line#*,}
        case $kind in
            dir|file) compopt -o default ;;
            graph) COMPREPLY+=("${value%/}"); compopt -o filenames ;;
            plain)
                [[ $value == *= ]] && compopt -o nospace
                printf -v value %q "${value#"$before"}"
                COMPREPLY+=("$value")
                ;;
        esac
    done < <(COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1)) \
        _DROPFLOW_COMPLETE=bash_complete "$1" 2>/dev/null)
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
        """Yield the script."""
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
