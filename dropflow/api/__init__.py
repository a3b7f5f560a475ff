"""The API of managers over HTTP: its operations and records, a client, and a server of any table of routes.

From the table in `operations` follow routes, the OpenAPI document and the client. The server answers with one envelope
and one form of errors, by waitress. May not import the execution, data or applications.

=================  =====================================================================================================
`operations`       The operations of a manager's API: one table with verb, path, types and errors of each
`session_records`  Records of sessions: what they are, why they failed, how they were at a moment, and what changed
`drop_queries`     Queries of the drops of a session: the drops that match, their order, and the drop that a text names
`drop_records`     Records of drops and of results
`node_records`     Records of nodes, other managers and hosts: what they are, can run and have in use
`requests`         Queries, bodies and answers of single operations (`dropflow.api.operations`)
`contents_answer`  Contents of many drops in one answer: the request, and the records that come back one after the
                   other; downloads, their names, and paths of results
`logs`             What the logs of sessions and of managers have in common: which lines match a query, and the form of
                   their text
`manager`          A manager: a typed method for each operation, which all go through `Manager.call`
`client`           A manager that sends each operation over HTTP
`http_client`      HTTP requests to one server: kept connections, a time limit on every wait, errors as their class (ADR
                   0010)
`auth`             Access control: a token or a signature, and an allowed Host and Origin, for every method
`signing`          Signatures of requests with the cluster key or the key of a user: they are made and checked here
`routes`           Routes, the requests that their handlers get, their answers, and limits on requests
`bottle_app`       A bottle application from a table of routes
`serving`          Serves a bottle application with waitress, so that event streams and slow clients do not block other
                   requests
`waitress_server`  waitress with a loop that its caller runs step by step, and with threads that start when they are
                   needed
`error_pages`      An error as an HTML page, for browsers; programs get the same error as JSON; relative addresses in
                   pages
`request_bodies`   Request bodies: limits on their size, depth and memory, and their decompression
`error_body`       Errors as JSON: a status and a body when they are sent, an error of the same class when they are
                   received
`event_stream`     Server-sent events: formats and parses them
`addresses`        Addresses of servers: their default ports, their form, the loopback interface and all interfaces
`openapi`          The OpenAPI 3.1 document of a route table
`patience`         How long a manager that does not answer is asked again
=================  =====================================================================================================
"""
