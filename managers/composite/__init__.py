"""Islands and masters: managers of managers. They keep no session of their own; they ask their children.

Read `composite_machine` first, which decides, then `waiting_operations` (how an operation waits for answers of
children) and `sessions` (the operations on sessions). `child_connections` carries the requests out.
"""
