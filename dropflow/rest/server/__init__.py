"""A server of a table of routes: a bottle application with one envelope and one form of errors, served by waitress.

Read `route` and `bottle_app` first: a row of the table, and what makes the application. `auth` checks credentials and
origins; `rest_server` serves the application with waitress (`waitress_server`, `waitress_channel`,
`connection_limits`). `error_response` chooses between an error as JSON and as a page (`error_page`).

May import `dropflow.rest`, and not `dropflow.rest.pages`.
"""
