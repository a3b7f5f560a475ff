"""``python -m dropflow`` is the ``dropflow`` command."""

from dropflow.cli.main import main

if __name__ == "__main__":
    main()
