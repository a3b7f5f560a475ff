"""Tasks of dask in the processes that run them: worker processes of dropflow, on this machine and on nodes.

`task_app` is their application. A manager imports that module only, to know how the application runs, and neither dask
nor what `dropflow.dask` needs to translate graphs. May import what applications may, and dask. Read `run_task` first.
"""
