"""The API of managers over HTTP: its operations and records, and a client.

Read `operations` first: one table, from which routes, the OpenAPI document and the client follow. `manager_records`,
`session_records` and the other ``..._records`` are its types; `client` calls it with `operation_caller` and
`http_client`. `signing` and `error_body` are for both ends: how requests are signed, and errors as JSON.

`dropflow.rest.server` is the server of any table of routes; `dropflow.rest.pages` has what all web pages share. What
is computed from the records of a session is in `dropflow.session_views`. Nothing in this package itself imports those
three.
"""
