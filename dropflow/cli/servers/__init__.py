"""Processes that serve until they get a signal: the managers and the translator, alone, together, and under systemd.

=================  =====================================================================================================
`roles`            ``dropflow node``, ``island``, ``master``, ``daemon`` and ``translator``
`up`               ``dropflow up`` and ``down``: a translator, a master, an island and nodes on this host
`service`          ``dropflow service``: managers as services of systemd
`local_cluster`    The processes of ``dropflow up``, which end with it
`server_options`   The options that several of these commands have
`server_process`   The frame around every server process: logs, key, token, ready line, and a clean end
`manager_service`  Parts that node, island, master and daemon share: the REST service and the announcement by zeroconf
=================  =====================================================================================================
"""
