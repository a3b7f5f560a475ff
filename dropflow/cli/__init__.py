"""The ``dropflow`` command.

`main` has the table of commands, and in which module each is. Modules are imported when their command runs, and large
libraries within the functions that need them, so that help is quick. A command answers with an `output.Reply`. This
package may import all others, and no other one imports it.

================  ======================================================================================================
`main`            The ``dropflow`` command: the table of its commands, and the errors of the command line
`output`          The three forms of output: a table for people, JSON for programs, only errors for scripts; the reply
                  of a command that failed; columns, and commands to paste
`common_options`  The frame around every command, options that several have, and the types of their values
`candidates`      Candidates for the completion of arguments in shells
`run_or_session`  RUN of a command line: the directory of a run on this machine, or a session of a manager
`run`             ``dropflow run`` and ``resume``: graphs on this machine, and how sessions go on
`retry`           ``dropflow retry``: failed drops of a run, or of a session of a manager, again
`graphs`          Commands for graphs before they run: ``check``, ``fill``, ``info``, ``diff``, ``translate``, ``drill``
                  and ``palette``
`sessions`        Commands for sessions of a manager: ``submit``, ``watch``, ``sessions``, ``log``, ``fetch`` and what
                  stops them
`understand`      Commands that say why and from what: ``explain``, ``replay``, ``times`` and ``cache``
`servers`         ``dropflow node``, ``island``, ``master``, ``daemon``, ``translator``, ``up``, ``down`` and
                  ``service``
`jobs`            ``dropflow launch`` and ``pool``: clusters on the hosts of a batch system, or over ssh
`open`            ``dropflow open``: an address that signs a browser in
`nodes`           ``dropflow nodes``: the nodes of a manager and their load
`doctor`          ``dropflow doctor``: what is wrong between the hosts of a cluster, and what to do
`doctor_checks`   The checks of it, which yield findings from what was collected
`keys`            ``dropflow keys``: the cluster key, which all managers of a cluster share
`completion`      ``dropflow completion``: a script that completes commands in a shell
`exit_status`     The exit statuses of the command
================  ======================================================================================================
"""
