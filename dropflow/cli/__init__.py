"""The ``dropflow`` command.

`main` lists the commands. Each command is one module of its name, which has the click command as ``command``; a command
with more parts is a package. Modules are imported when their command runs, and large libraries within the functions
that need them, so that help is quick. A command answers with an `output.Reply`. This package may import all others, and
no other package imports it.
"""
