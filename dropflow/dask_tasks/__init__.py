"""Tasks of dask in the processes that run them: worker processes of dropflow, on this machine and on nodes.

A manager imports this to know how the application runs, and neither dask nor what `dropflow.dask` needs to translate
graphs. May import what applications may, and dask.

===================  ==================================================================================================
`value_encoding`     Values as contents of drops, so that large arrays are not copied when they are read
`fused_blocks`       Execution of tasks that dask has fused: a block of several tasks, which are called one after
                     another
`logged_exceptions`  Exceptions of tasks in the logs of their drops, so that the client can raise them again
`run_task`           Runs one task of dask: from the contents of its inputs to the content of its output
`task_app`           The application that runs tasks of dask where values travel: in worker processes, and on nodes
`task_pages`         Tasks of one template as bytes: the code that they share once, and the tasks themselves in pages
===================  ==================================================================================================
"""
