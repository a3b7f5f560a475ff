"""For tests, ours and those of people who write applications: drawings, strict fakes, a virtual clock, strategies.

May import everything of `dropflow` but the command line; nothing of the product may import it.
"""
