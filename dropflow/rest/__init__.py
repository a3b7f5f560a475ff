"""REST servers and clients: a bottle application from a table of routes, with one envelope and one form of errors.

Read `route` and `bottle_app` first: a row of the table, and what makes the application. `auth` checks credentials and
origins; `server` serves the application with waitress (`waitress_server`, `waitress_channel`, `connection_limits`).
Errors have three modules: `error_body` is the JSON of an error, both ways; `error_page` is the same as HTML;
`error_response` chooses between them.

The API of managers is in `operations` (the table), `schema` and `operation_records` (its types) and `client`.
`pages` has the templates and the layout of all web pages.
"""
