"""Palettes of components in EAGLE's format, derived from the components' own definitions.

`build` makes the palettes from those, from the fields that all applications and all data share
(`dropflow.apps.app_parameters`, `dropflow.data.data_parameters`) and from `construct_entries`; `eagle_records` has the
form of EAGLE's files.
"""
