% rebase("layout.tpl", title="Nodes", here="Nodes", heading="Nodes", about=f"Node managers at or below {manager.role} {shown_name(manager.name)}", script="page.js")
<section class="block" aria-label="List of nodes">
<form class="filters few" method="get" action="/nodes" data-parts="nodes">
% if view.query.sort:
<input type="hidden" name="sort" value="{{view.query.sort}}">
% end
<label>Name, host or island<input type="search" name="text" value="{{view.query.text}}" maxlength="200"></label>
<label>State<select name="state"><option value="">any</option>
% for state in ("alive", "draining", "drained", "suspect", "lost"):
<option value="{{state}}"{{" selected" if state == view.query.state else ""}}>{{state}}</option>
% end
</select></label>
<button type="submit">Show</button>
</form>
<div data-part="nodes">
% if view.nodes:
% include("nodes_table.tpl", nodes=view.nodes, sort=view.query.sort, sort_address=sort_address)
% elif view.query.text or view.query.state:
<div class="empty"><p>No node matches.</p><p><a href="/nodes">Show all</a></p></div>
% else:
<div class="empty"><p>No node manager has joined yet.</p></div>
% end
</div>
</section>
