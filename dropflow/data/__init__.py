"""Stores of data drops: where contents live, how they are committed, and for how long.

May import `dropflow.execution` and what is below it.

================  =====================================================================================================
`store`           How a class of data drops takes content: `Store` for the class, `ContentWriter` for what one attempt
                  writes
`registry`        The store of each class name in a graph
`repository`      Owner of the committed contents of one session's data drops, on this machine
`workspace`       The directory of a session, with uncommitted and committed contents, and that in shared memory; their
                  removal
`file`            File drops: content in a file with a chosen name
`file_names`      Paths of file drops: the rules for `filepath` and `dirname`
`file_owners`     The files that drops have written: no drop overwrites the file of another, or finds what it wrote
                  before
`directory`       Directory drops: content in a directory that a program fills
`url`             URL and S3 drops: content in a store outside of this machine
`ngas`            NGAS drops: files in an archive
`database`        RDBMS drops: the rows of a table
`memory`          Memory drops: small contents are in the `Handle`, large ones in shared memory
`kept_content`    Contents that earlier sessions on the same machine have left, read where they are
`parameter_set`   Parameter set drops: the parameters of the node as a configuration for a program
`streams`         Contents that are read while they are written: the files of a stream, and its writing end
`read`            Reading the contents of handles (`dropflow.execution.content_location.Handle`)
`remote`          Access to contents at URLs, by fsspec
`survival`        Finds the contents of an earlier process that still exist
`storage_errors`  Errors of the operating system as `StorageError`, with the path and what to do
================  =====================================================================================================
"""
