"""Calls methods of DALiuGE's own Python client, in an environment where it is installed; run as a script.

Arguments: kind of manager and port. Standard input: a JSON list of [method, argument, ...]; standard output: the
answers, or the name and arguments of the exceptions.
"""

import json
import sys


def main() -> None:
    """Make the calls, one after the other."""
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
            answers.append(getattr(client, method)(*arguments))
        except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
            answers.append({"raised": type(error).__name__, "args": [str(argument) for argument in error.args]})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
