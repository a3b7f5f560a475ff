"""Partitioners: they assign each drop to a part, so that little data crosses between parts.

`registry` has them by name: `metis` and `blocks`.
"""
