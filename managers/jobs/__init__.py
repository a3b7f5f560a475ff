"""Jobs of batch systems and hosts over ssh, where clusters run that are not started by hand.

`batch` turns a request for nodes into a batch script, and asks Slurm, PBS or Grid Engine; `job_directory` has the files
in the directory that a job and the commands outside share; `pool` decides when an island gets nodes from it; `ssh`
reaches hosts without a batch system. ``dropflow launch`` and ``dropflow pool`` join them.

===============  ======================================================================================================
`batch`          Batch systems as rows of one table: their scripts, and the calls of their commands
`job_directory`  The directory of a job, which outlives it: what was asked for, how far it is, and its key
`pool`           When a pool asks a batch system for nodes, and when it gives them back
`installation`   This dropflow, installed on hosts over ssh
`ssh`            Hosts over the user's own OpenSSH: the file that names them, their checks, and how their nodes start
===============  ======================================================================================================
"""
