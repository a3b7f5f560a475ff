"""Call methods of DALiuGE's own Python client, in an environment where it is installed; run as a script.

Arguments: kind of manager and port. Standard input: a JSON list of [method, argument, ...]; standard output: the
answers, or the name and arguments of the exceptions. The method `until` repeats the call that follows its first
argument until every state in the answer is that one.
"""

import json
import sys
import threading
from typing import Any


def main() -> None:
    """Make the calls in order and print their results."""
    from dlg import clients  # noqa: PLC0415 - only installed where this runs

    kinds = {
        "node": clients.NodeManagerClient,
        "island": clients.DataIslandManagerClient,
        "master": clients.MasterManagerClient,
    }
    client = kinds[sys.argv[1]]("127.0.0.1", int(sys.argv[2]))
    answers = []
    for method, *arguments in json.load(sys.stdin):
        try:
            answers.append(_until(client, *arguments) if method == "until" else getattr(client, method)(*arguments))
        except Exception as error:  # noqa: BLE001 - any exception is an answer
            answers.append({"raised": type(error).__name__, "args": [str(argument) for argument in error.args]})
    json.dump(answers, sys.stdout)


def _states(answer: Any) -> set[int]:
    """Return all states in a status: of one node, by node, or by island and node."""
    if isinstance(answer, dict):
        return set().union(*(_states(value) for value in answer.values()))
    return {answer}


def _until(client: Any, state: int, method: str, *arguments: Any) -> Any:
    for _ in range(900):
        answer = getattr(client, method)(*arguments)
        if _states(answer) == {state}:
            return state
        threading.Event().wait(0.1)
    return answer


if __name__ == "__main__":
    main()
