"""Parts that the web pages of all servers share, and views of a session that pages, commands and files show.

``templates/layout.tpl`` is the frame of every page. May import `dropflow.api`.

===============  =======================================================================================================
`frame`          HTML pages from templates with one layout, for all servers of dropflow
`sign_in`        The login of browsers: a URL with the token or a ticket in its fragment is exchanged for a cookie and a
                 page key
`known_servers`  The servers of one cluster as a browser reaches them, and the one among them where it signs in: the
                 front door
`graph_views`    The picture of a physical graph for the pages of managers and of the translator: its drawing, edges and
                 selections
`views`          Parts of pages: fields of forms, bars of states, and tables of what nodes moved
`times`          The times of a session, and its drops as they were at a moment, for pages
`report`         A report of a session: one HTML file with pictures and tables, without scripts, that needs no server
`comparison`     The comparison of two sessions: graph, parameters, programs, drops, times and failures
`signature`      The signature of a session: what it computed, by four levels, and by DALiuGE's seven modes
`origin`         The origin of a result: the inputs, applications, parameters, versions and attempts that it was made
                 from
`cause_groups`   Groups root causes whose texts are equal but for numbers: the same failure of forty instances is shown
                 once
`tickets`        Tickets: each signs one browser in at this server, once, within a short time (ADR 0020)
===============  =======================================================================================================

The scripts in ``static/``, first those of the page of a graph:

====================  =================================================================================================
``graph.js``          The page of a physical graph: what is chosen and shown, and what is around its canvas
``graph_canvas.js``   The canvas of the graph page: drawn again after each change, and moved by pointer and wheel
``graph_paint.js``    Draws one frame: boxes far away as bars, nearer as a matrix of their drops, and near by as drops
                      with their edges
``graph_near.js``     Drops near by: each with its border, name, ports and edges, as many as one frame can draw
``graph_lines.js``    Ways of edges around boxes and drops
``graph_matrix.js``   The drops of all boxes as one picture, a pixel a drop, which is drawn larger or smaller
``graph_theme.js``    Colours, patterns and fonts of the canvas, from the style sheet
``graph_camera.js``   Which part of the drawing is on the canvas, and how large
``graph_model.js``    The graph that the view shows: boxes, cells and edges from the server, the states of drops, and
                      which are shown apart
``graph_columns.js``  Columns of numbers from the server: the same as dropflow/graph/drawing/packing.py
``graph_states.js``   The states of the drops of a session, from its event stream
``scrub.js``          A slider over the time of a session: the server says how the session was at the chosen moment,
                      one request at a time
``latest.js``         Requests to the server, one at a time: of those that were wanted meanwhile, only the last is sent
``graph_list.js``     The boxes as a list beside the canvas, for people who do not see it, and to find those with
                      errors
``graph_panel.js``    The panel beside the canvas: the drop or box that is chosen, with what can be done with it
``graph_logical.js``  The logical graph above the physical one: its nodes with the states of their drops, in frames of
                      their constructs
``kit.js``            What all pages have: filters that apply as typed, sorted tables, all columns on a phone, keys and
                      commands
``filters.js``        Filters apply as they are typed, and are in the address of the page
``tables.js``         Tables: sorted by a click on a column, and a button that shows the columns that a narrow window
                      leaves out
``keyboard.js``       Keys of all pages: j and k go through rows, / searches, ? shows the keys, Ctrl+K finds pages,
                      sessions and commands
``theme.js``          Dark or light colours as chosen, before the page is drawn; without a choice, as the system wants
                      it
``colours.js``        Colours of the style sheet for a canvas, which knows neither variables nor light and dark
``page_key.js``       Completes the forms that change something (form[data-key]) with the page key
``login.js``          Reads the token or a ticket from the fragment of the address, which is not sent to the server,
                      and exchanges it for a cookie and the page key
``refresh.js``        Updates the parts of an open page from the page that the server renders now
``liveness.js``       The indicator that shows whether the page is up to date
``log.js``            The log of a session or a manager: new lines as they are written, older ones on demand, filters
                      that apply as they are typed
``formatting.js``     Counts, durations, rates and failures as text: the same as dropflow/formatting.py,
                      graph/drop_counts.py and web/cause_groups.py
====================  =================================================================================================
"""
