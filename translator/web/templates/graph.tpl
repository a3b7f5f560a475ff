% rebase("page.tpl", title=f"Graph of {single_line(info.name, 60)}", here="", script="graph.js", sheet="graph.css")
<div class="page-head">
<div>
<p class="crumbs"><a href="/">Translate</a><span>/</span><a href="/translations/{{info.id}}"><bdi>{{single_line(info.name, 80)}}</bdi></a></p>
<h1>Graph</h1>
</div>
</div>
% include("graph_view.tpl", base=f"/translations/{info.id}/graph", events="", api="", page="", by="construct", groupings=groupings, has_parts=info.parts > 1)
