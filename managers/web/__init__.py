"""The web pages of a manager: complete without JavaScript, updated live with it.

``templates/`` has their HTML.

================  =====================================================================================================
`pages`           The pages of a manager and their ``.json`` twins, written against `dropflow.api.manager.Manager` only;
                  forms that pause, continue, resume, retry, run again, cancel or delete a session, or run a graph
`views`           The content of each page as a record, which is rendered as HTML and, for its ``.json`` twin, as JSON
`session_pages`   Pages of one session: its graph, its results, the comparison with another, the origin of a drop
`page_templates`  The templates of a manager's pages, ``managers/web/templates``, and the names that they use
`logs`            Texts on pages: the end of a log, and the beginning of a download
================  =====================================================================================================

The scripts in ``static/``:

========================  =============================================================================================
``page.js``               Lists and drops: fetches the page again every few seconds while it is visible
``session.js``            The page of a session while it runs: numbers and bars are updated from the event stream, at
                          most five times a second and only where they differ
``stream.js``             Follows one session by server-sent events, or by polling its JSON twin if there is no stream
``bars.js``               Stacked bars: the same as dropflow/web/views.py, for open pages whose drops change state
``timeline.js``           The page of the timeline of a session: fetches the times of attempts, and again while the
                          session runs
``timeline_model.js``     What the page of a timeline shows: attempts in lanes, the part that is in view, and what is
                          chosen in it
``timeline_canvas.js``    Draws a timeline on a canvas: only what is in view, and attempts narrower than a pixel
                          together
``viewport.js``           Which part of the time a canvas shows, and the marks of its ruler
``timeline_controls.js``  Pointer, wheel, keys and buttons of a timeline
``timeline_panel.js``     The words beside a timeline: the legend, and what the attempt, gap or area that is pointed at
                          is
``attempts.js``           The attempts of a session as columns: read from the octets of /times and /times/analysis (see
                          docs/reference/rest.md)
``viewer.js``             The picture of an array: zooms, moves, and tells the value under the pointer
========================  =============================================================================================
"""
