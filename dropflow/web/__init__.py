"""Parts that the web pages of all servers share, and views of a session that pages, commands and files show.

``templates/layout.tpl`` is the frame of every page; ``static/`` has the scripts. May import `dropflow.api`.

The first line of each script in ``static/`` tells what it does. Of the graph page, ``graph.js`` has what is chosen and
what is around the canvas, ``graph_canvas.js`` the canvas; ``graph_paint.js`` draws boxes and their drops as bars or as
a matrix, ``graph_near.js`` single drops with names, ``graph_lines.js`` edges; ``graph_model.js`` has what they draw,
``graph_theme.js`` its colours.

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
"""
