% name = session.session
% rebase("session_frame.tpl", title=f"Graph of {shown_name(name, 80)}", tab="Graph", script="graph.js", sheet="graph.css")
<h2 class="unseen">Graph</h2>
% include("graph_view.tpl", base=f"{session_url(name)}/graph", events=events, api=session_api(name), page=session_url(name), by="construct", groupings=groupings, has_parts=len(session.nodes) > 1)
