"""The REST kit: a bottle application from a table of routes, with one envelope and one shape of error.

`kit` makes the application, `auth` decides who may enter, `openapi` describes the same table, `server` serves it, and
`failures` carries errors over the wire and back. It knows nothing of managers or sessions. Read `kit` first.
"""
