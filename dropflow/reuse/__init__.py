"""Results of earlier runs are taken, and only what has changed runs.

A run that reuses (`dropflow.session_options.RunOptions.reuse`) takes whole branches whose keys are known before
anything runs (`plan`). What is left runs as usual, and each attempt asks for its result when its inputs are there
(`attempt`).

=====================  =========================================================================================
`result_store`         Contents by digest, and records of what the application with a key wrote
`remote_result_store`  The result store at an address that fsspec reaches, such as a bucket
`code`                 What the code of an application is: functions, modules of the user, packages
`keys`                 What results of a node depend on, which nodes are reused, and the keys known before a run
`plan`                 What a run takes from the result store before anything runs
`reasons`              What a run would do, and why
`attempt`              What an attempt takes, and what it stores
`log`                  Which applications of a session were taken, and from where
=====================  =========================================================================================
"""
