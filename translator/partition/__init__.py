"""Partitioners: they assign each drop to a part, so that little data crosses between parts.

`registry` has them by name; without another choice it is `translator.stage_options.DEFAULT_ALGORITHM`.
"""
