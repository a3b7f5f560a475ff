% node = view.node
% rebase("layout.tpl", title=f"Node {shown_name(node.name, 80)}", here="Nodes", heading=shown_name(node.name, 120), about=f"{shown_name(node.host)}, {node.state}", crumbs=(("Nodes", "/nodes"),), script="page.js")
<p class="block-small"><a class="button" href="/nodes/{{quoted(node.name)}}/log">Log</a></p>
<div data-part="node">
% include("warnings.tpl", warnings=view.warnings)
<section class="block">
% include("nodes_table.tpl", nodes=(node,), sort="", sort_address=None)
</section>
<section class="block" aria-labelledby="history-title">
<div class="section-head"><h2 id="history-title">Load</h2>
% if plots:
<span class="muted">the last {{format_duration(view.history.samples[-1].time - view.history.samples[0].time)}}</span>
% end
</div>
% if plots:
<div class="plots">
% for plot in plots:
% include("plot.tpl", plot=plot)
% end
</div>
% else:
<div class="empty"><p>The first samples are taken now.</p></div>
% end
</section>
</div>
