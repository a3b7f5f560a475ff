<section class="block" id="nodes">
<div class="section-head"><h2>Logical nodes</h2><span class="muted">{{plural(nodes.total, "node")}}</span></div>
<div class="table tall" tabindex="0" role="region" aria-label="Logical nodes"><table>
<thead><tr><th scope="col">Node</th><th scope="col" class="at-middle">Category</th><th scope="col" class="at-wide">Component</th><th scope="col" class="number at-middle">Shape</th><th scope="col" class="number">Drops</th></tr></thead>
<tbody>
% for node in nodes.rows:
<tr><th scope="row"><bdi>{{single_line(node.name, 120)}}</bdi><span class="sub at-narrow"><bdi>{{single_line(node.category, 60)}}</bdi></span></th>
<td class="at-middle"><bdi>{{single_line(node.category, 60)}}</bdi></td>
<td class="at-wide muted"><bdi>{{single_line(node.component, 120)}}</bdi></td>
<td class="number at-middle muted">{{format_shape(node.shape)}}</td>
<td class="number">{{format_count(node.drops)}}</td></tr>
% end
</tbody></table></div>
% include("more.tpl", listed=nodes, noun="node")
</section>
% if links.rows:
<section class="block" id="links">
<div class="section-head"><h2>Links</h2><span class="muted">{{plural(links.total, "link")}}</span></div>
<div class="table tall" tabindex="0" role="region" aria-label="Links"><table>
<thead><tr><th scope="col">From</th><th scope="col">To</th><th scope="col" class="number">Edges</th></tr></thead>
<tbody>
% for link in links.rows:
<tr><td><bdi>{{single_line(link.source, 120)}}</bdi>\\
% if link.source_port:
<span class="sub at-middle"><bdi>{{single_line(link.source_port, 60)}}</bdi></span>\\
% end
</td><td><bdi>{{single_line(link.target, 120)}}</bdi>\\
% if link.target_port:
<span class="sub at-middle"><bdi>{{single_line(link.target_port, 60)}}</bdi></span>\\
% end
</td><td class="number">{{format_count(link.edges)}}</td></tr>
% end
</tbody></table></div>
% include("more.tpl", listed=links, noun="link")
</section>
% end
