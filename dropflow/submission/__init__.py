"""Managers as those see them who submit graphs: the commands, graphs written in Python, and collections of dask.

=================  =====================================================================================================
`options`          The options that name a manager
`connection`       The client of that manager, with the credentials that the options or this host have for it
`submit`           A graph submitted: placed on the nodes that are alive, and once, also if the answer is late
`progress`         How far sessions and transfers are, on standard error
`manager_records`  Where keys, sessions and tokens are; and the records of the managers that run on this host
=================  =====================================================================================================
"""
