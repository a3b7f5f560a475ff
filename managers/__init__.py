"""Managers: node, data island, master and daemon, with the links between nodes, their REST routes and pages.

Read `api` first: the operations of every manager. `messages` has what nodes send to each other over links, `membership`
after how much silence a peer is lost. `owner_thread` runs the state machine of a manager, which is in `node` or
`composite`.
"""
