"""Clusters on other hosts: jobs of batch systems, hosts over ssh, and pools of nodes.

`managers.jobs` decides and knows the batch systems; this package talks to them, and to the user.

================  ======================================================================================================
`launch`          ``dropflow launch``: graphs and clusters on the hosts of a batch system, or over ssh
`job_submission`  Jobs of it: how they are submitted and waited for, on the host of their batch system
`launched_job`    What runs inside such a job: the head on its first host, and a node manager on each
`hosts`           Hosts over ssh: their check, and the start of their nodes
`login`           Login nodes: jobs that are submitted there, and managers that are reached through one
`pool`            ``dropflow pool``: nodes that an island gets from a batch system while work waits for them
`pool_process`    The process of a pool, and the files by which ``dropflow pool`` commands it
================  ======================================================================================================
"""
