"""Processors, GPUs and memory of this host, and descendants of this process: nothing that depends on a graph or a run.

=============  ========================================================================================================
`processors`   The processors that this process may use, and the variables that tell libraries how many threads to use
`gpus`         The GPUs that this process may give to attempts, and those that others of this user have claimed
`memory`       How much memory this process and those that it starts may use together, and whether that is nearly used
               up
`descendants`  Ends all processes that an attempt or a worker process has started, daemons included
=============  ========================================================================================================
"""
