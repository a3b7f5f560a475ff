% name = session.session
% rebase("page.tpl", title=f"Graph of {shown_name(name, 80)}", here="Sessions", script="graph.js", sheet="graph.css")
<div class="page-head">
<div>
<p class="crumbs"><a href="/sessions">Sessions</a><span>/</span><a href="{{session_url(name)}}"><bdi>{{shown_name(name, 80)}}</bdi></a></p>
<h1>Graph</h1>
</div>
</div>
% include("graph_view.tpl", base=f"{session_url(name)}/graph", events=events, api=session_api(name), page=session_url(name), by="construct", groupings=groupings, has_parts=len(session.nodes) > 1)
