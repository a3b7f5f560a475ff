"""Commands of ``dropflow`` that explain a run or session: why, from what, and when.

===============  =======================================================================================================
`explain`        ``dropflow explain``: why a drop is in its state, and what made it
`origin`         What runs and sessions have computed, and from what, for ``explain --origin``
`crate`          Workflow Run RO-Crates and their signatures, for ``dropflow explain --crate``
`prov`           The provenance of every drop of a session, as W3C PROV, for crates
`replay`         ``dropflow replay``: an attempt again on this machine, also under a debugger
`times`          ``dropflow times``: how long attempts waited and ran, and when
`measured_runs`  The records of attempts in runs, sessions of managers and files of measurements
`written_files`  Files that commands write in one of several forms: traces, pictures, reports, measurements and answers
`cache`          ``dropflow cache``: the result store
===============  =======================================================================================================
"""
