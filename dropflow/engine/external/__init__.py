"""Attempts in the workers of another engine, which is in operation already: Dask, Ray.

A session stays here, with its core, journal, retries and commits; `ExternalRunner` is its runner. It sends attempts in
batches to an `Engine`, which decides which of its workers runs a batch. In the process of that worker a `Host` has
worker processes of ours, so that attempts begin, time out, are killed and are logged there as they are here.

May import what `dropflow.engine` may, and `dropflow.engine.runners`. The packages of the engines are imported when a
runner starts. Read `engine` first, then `external_runner`.
"""
