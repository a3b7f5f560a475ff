% def more(listed):
% if listed.left_out:
<p class="muted small block-small">{{format_count(listed.left_out)}} more are not listed.</p>
% end
% end
% if not found.is_same_graph:
<section class="block" aria-labelledby="graph-title">
<div class="section-head"><h2 id="graph-title">Graph and parameters</h2></div>
% if found.nodes.rows:
<div class="table tall" tabindex="0" role="region" aria-label="Table of logical nodes that differ"><table data-sortable>
<thead><tr><th scope="col">Logical node</th><th scope="col">Change</th><th scope="col" class="number"><span class="swatch first"></span>Drops</th><th scope="col" class="number"><span class="swatch second"></span>Drops</th></tr></thead>
<tbody>
% for one in found.nodes.rows:
<tr><th scope="row"><bdi class="clip">{{shown_name(one.name, 120)}}</bdi><span class="sub"><bdi>{{shown_name(one.category, 60)}}</bdi></span></th><td><span class="change {{one.change}}">{{one.change}}</span></td><td class="number{{"" if one.first else " zero"}}">{{format_count(one.first)}}</td><td class="number{{"" if one.second else " zero"}}">{{format_count(one.second)}}</td></tr>
% end
</tbody></table></div>
% more(found.nodes)
% end
% if found.values.rows:
<h3 class="block-small">Values</h3>
<div class="table tall" tabindex="0" role="region" aria-label="Table of values that differ"><table class="values" data-sortable>
<thead><tr><th scope="col">Logical node</th><th scope="col"><span class="swatch first"></span>First</th><th scope="col"><span class="swatch second"></span>Second</th></tr></thead>
<tbody>
% for one in found.values.rows:
<tr><th scope="row"><bdi class="clip">{{shown_name(one.node, 120)}}</bdi><span class="sub"><bdi>{{shown_name(one.what, 120)}}</bdi></span></th>\\
% for value in (one.first, one.second):
% if value is None:
<td class="muted">–</td>\\
% else:
<td class="mono"><bdi class="clip-long">{{value or '""'}}</bdi></td>\\
% end
% end
</tr>
% end
</tbody></table></div>
% more(found.values)
% end
% if found.links_removed.rows or found.links_added.rows:
<h3 class="block-small">Links</h3>
<ul class="plain small links">
% for style, word, links in (("removed", "removed", found.links_removed), ("added", "added", found.links_added)):
% for one in links.rows:
<li><span class="change {{style}}">{{word}}</span> <bdi>{{shown_name(one, 300)}}</bdi></li>
% end
% end
</ul>
% more(found.links_removed)
% more(found.links_added)
% end
</section>
% end
% if found.settings.rows:
<section class="block" aria-labelledby="settings-title">
<div class="section-head"><h2 id="settings-title">Nodes, plan, options and versions</h2><span class="muted">those that differ</span></div>
<div class="table" tabindex="0" role="region" aria-label="Table of settings that differ"><table class="values">
<thead><tr><th scope="col">Setting</th><th scope="col"><span class="swatch first"></span>First</th><th scope="col"><span class="swatch second"></span>Second</th></tr></thead>
<tbody>
% for one in found.settings.rows:
<tr><th scope="row">{{single_line(one.name, 80)}}<span class="sub">{{one.group}}</span></th><td><bdi>{{single_line(one.first, 500) or "–"}}</bdi></td><td><bdi>{{single_line(one.second, 500) or "–"}}</bdi></td></tr>
% end
</tbody></table></div>
</section>
% end
