% rebase("layout.tpl", title=f"Graph of {single_line(info.name, 60)}", here="", heading="Graph", crumbs=(("Translate", "/"), (single_line(info.name, 80), f"/translations/{info.id}")), script="graph.js", sheet="graph.css")
% include("graph_view.tpl", base=f"/translations/{info.id}/graph", events="", api="", page="", by="construct", groupings=groupings, has_parts=info.parts > 1)
