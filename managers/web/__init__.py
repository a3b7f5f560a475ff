"""The web pages of a manager: complete without JavaScript, updated live with it.

``templates/`` has their HTML, ``static/`` the scripts.

================  =====================================================================================================
`pages`           The pages of a manager and their ``.json`` twins, written against `dropflow.api.manager.Manager` only;
                  forms that pause, continue, resume, retry, run again, cancel or delete a session, or run a graph
`views`           The content of each page as a record, which is rendered as HTML and, for its ``.json`` twin, as JSON
`session_pages`   Pages of one session: its graph, its results, the comparison with another, the origin of a drop
`page_templates`  The templates of a manager's pages, ``managers/web/templates``, and the names that they use
`logs`            Texts on pages: the end of a log, and the beginning of a download
================  =====================================================================================================
"""
