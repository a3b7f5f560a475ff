"""The ``dropflow`` command.

`main` is the door; each command is one module that declares its options and imports what it needs only when it runs, so
that printing help stays quick. What a command answers is a `output.Reply`, which `output` prints for people, for
programs, or not at all. May import everything; nothing imports it.
"""
