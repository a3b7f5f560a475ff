% kind = dict(node="Node manager", island="Data island manager", master="Master manager").get(manager.role, manager.role)
% rebase("layout.tpl", title="Overview", here="Overview", heading=shown_name(manager.name), about=f"{kind}{f' at {shown_name(manager.url)}' if manager.url else ''}, up for {format_duration(manager.time - manager.started)}", script="page.js")
<p class="block-small"><a class="button" href="/nodes/{{quoted(manager.name)}}/log">Log</a></p>
<div data-part="overview">
% include("warnings.tpl", warnings=view.warnings)
<section class="block" aria-label="Summary">
<dl class="figures">
<div><dt>Nodes</dt><dd>{{format_count(len(view.nodes))}}\\
% lost = sum(node.state not in ("alive", "draining", "drained") for node in view.nodes)
% if lost:
 <small>{{format_count(lost)}} not answering</small>\\
% end
</dd></div>
% cores = cores_of_hosts(view.nodes)
<div><dt>Cores</dt><dd>{{format_count(sum(cores.values()))}} <small>on {{plural(len(cores), "host")}}</small></dd></div>
<div><dt>Attempts running</dt><dd>{{format_count(sum(node.load.busy for node in view.nodes))}}</dd></div>
<div><dt>Sessions</dt><dd>{{format_count(view.total)}} <small>{{format_count(view.running)}} running</small></dd></div>
</dl>
</section>
% if view.children:
<section class="block">
<div class="section-head"><h2>{{"Islands" if manager.role == "master" else "Members"}}</h2></div>
<div class="table" tabindex="0" role="region" aria-label="Children"><table data-sortable>
<thead><tr><th scope="col">Name</th><th scope="col">State</th><th scope="col" class="at-middle">Address</th></tr></thead>
<tbody>
% for child in view.children:
<tr data-row="{{child.url}}"><th scope="row">
% if child.url.startswith(("http://", "https://")):
<a href="{{hop_url(child.url, "/")}}"><bdi>{{shown_name(child.name)}}</bdi></a>
% else:
<bdi>{{shown_name(child.name)}}</bdi>
% end
<span class="sub">{{child.role}}, <a href="/nodes/{{quoted(child.name)}}/log">log</a></span></th>
<td><span class="state {{node_style(child.state)}}">{{child.state}}</span>
% if child.text:
<span class="sub"><bdi>{{single_line(child.text)}}</bdi></span>
% end
</td>
<td class="at-middle muted"><bdi>{{shown_name(child.url)}}</bdi></td></tr>
% end
</tbody></table></div>
</section>
% end
<section class="block">
<div class="section-head"><h2>Sessions</h2>
% if view.total > len(view.sessions):
<a href="/sessions">All {{format_count(view.total)}}</a>
% end
</div>
% if view.sessions:
% include("sessions_table.tpl", sessions=view.sessions, sort="", sort_address=None)
% else:
<div class="empty"><p>No session yet.</p><p><a class="button primary" href="/submit">Submit a graph</a></p><p><code>dropflow submit GRAPH --to {{manager.url}}</code></p></div>
% end
</section>
<section class="block">
<div class="section-head"><h2>Nodes</h2>
% if view.first_nodes.left_out:
<a href="/nodes">All {{format_count(len(view.nodes))}}</a>
% end
</div>
% if view.nodes:
% include("nodes_table.tpl", nodes=view.first_nodes.rows, sort="", sort_address=None)
% else:
<div class="empty"><p>No node manager has joined yet.</p></div>
% end
</section>
</div>
