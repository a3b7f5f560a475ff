% rebase("page.tpl", title="Nodes", here="Nodes", script="page.js")
<div class="page-head">
<div><h1>Nodes</h1><p>Node managers at or below {{manager.role}} <bdi>{{shown_name(manager.name)}}</bdi></p></div>
<span class="live" id="live" role="status" data-state="off" hidden></span>
</div>
<div class="block" data-part="nodes">
% if view.nodes:
% include("nodes_table.tpl", nodes=view.nodes)
% else:
<div class="empty"><p>No node manager has joined yet.</p></div>
% end
</div>
