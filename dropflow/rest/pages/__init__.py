"""What the web pages of all servers share: the layout, scripts and styles, the login, the graph view, the log.

Read `page_layout` first: it renders templates, and ``templates/layout.tpl`` is the frame of every page. `login` signs
browsers in; `places`, `tickets` and `hop` lead them between the servers of a cluster. `graph_views` has the routes of
the picture of a graph, which the scripts ``static/graph_*.js`` draw.

May import `dropflow.rest.server`.
"""
