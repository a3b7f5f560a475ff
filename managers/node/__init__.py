"""The node manager: sessions of the engine on one host, linked to those on others.

Read `node_machine` first (which sessions are built, started and removed), then `session_host`, which carries that out
and passes on messages of other nodes, and `exchange`, which joins one session to those on other nodes.
"""
