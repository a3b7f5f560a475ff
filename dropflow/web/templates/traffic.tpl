% grid = traffic_grid(traffic)
% whole = grid.whole
<section class="block" aria-labelledby="traffic">
<div class="section-head"><h2 id="traffic">Moved between nodes</h2><span class="muted">{{format_size(whole.size)}} in {{plural(whole.contents, "content")}}{{f"; {format_size(whole.shared_size)} more were read where they are" if whole.shared_contents else ""}}{{f"; planned: {format_size(whole.planned)}" if grid.has_plan else ""}}</span></div>
<div class="table tall" tabindex="0" role="region" aria-label="Bytes moved between nodes"><table class="heat{{" compact" if grid.is_compact else ""}}">
<thead><tr><th scope="col">From \ to</th><th scope="col" class="number">Sent</th>
% for at, name in enumerate(grid.nodes, 1):
<th scope="col" class="number"{{!' title="' if grid.is_compact else ''}}{{shown_name(name, 40) if grid.is_compact else ""}}{{!'"' if grid.is_compact else ''}}>\\
% if grid.is_compact:
<span aria-hidden="true">{{at}}</span><span class="unseen"><bdi>{{shown_name(name, 40)}}</bdi></span></th>
% else:
<bdi>{{shown_name(name, 40)}}</bdi></th>
% end
% end
</tr></thead>
<tbody>
% for at, (name, row, sent) in enumerate(grid.rows, 1):
<tr data-row="{{name}}"><th scope="row">\\
% if grid.is_compact:
<span class="muted" aria-hidden="true">{{at}}</span> \\
% end
<bdi>{{shown_name(name, 40)}}</bdi></th><td class="number sum">{{format_size(sent)}}</td>
% for cell in row:
% if cell is None:
<td class="number zero">{{"" if grid.is_compact else "–"}}</td>
% else:
% words = f"{format_size(cell.size)} in {plural(cell.contents, 'content')}" if cell.size or not cell.shared_contents else ""
% words += (" and " if words and cell.shared_contents else "") + (f"{format_size(cell.shared_size)} read where they are" if cell.shared_contents else "")
% words += f", {grid.share(cell)} of all" + (f"; planned: {format_size(cell.planned)}" if grid.has_plan else "")
<td class="number{{f" heat-{grid.shade(cell.total, grid.most)}" if cell.total else " zero"}}" title="{{shown_name(cell.source, 40)}} to {{shown_name(cell.target, 40)}}: {{words}}">\\
% if grid.is_compact:
<span class="unseen">{{format_size(cell.total)}}</span></td>
% else:
{{format_size(cell.total)}}\\
% if grid.has_plan:
<span class="sub">of {{format_size(cell.planned)}}</span>\\
% end
</td>
% end
% end
% end
</tr>
% end
<tr data-row="/"><th scope="row">Received</th><td class="number sum">{{format_size(sum(grid.received))}}</td>
% for size in grid.received:
% if grid.is_compact:
<td class="number{{f" heat-{grid.shade(size, max(grid.received))}" if size else ""}}" title="{{format_size(size)}}"><span class="unseen">{{format_size(size)}}</span></td>
% else:
<td class="number sum">{{format_size(size)}}</td>
% end
% end
</tr>
</tbody></table></div>
% if grid.is_compact:
<details class="block-small"><summary>Pairs of nodes with most bytes</summary>
<div class="table tall" tabindex="0" role="region" aria-label="Pairs of nodes with most bytes"><table>
<thead><tr><th scope="col">From</th><th scope="col">To</th><th scope="col" class="number">Contents</th><th scope="col" class="number">Bytes</th>
% if grid.has_plan:
<th scope="col" class="number">Planned</th>
% end
</tr></thead><tbody>
% for one in grid.pairs.rows:
<tr data-row="{{one.source}}/{{one.target}}"><th scope="row"><bdi>{{shown_name(one.source, 80)}}</bdi></th><td><bdi>{{shown_name(one.target, 80)}}</bdi></td><td class="number">{{format_count(one.contents + one.shared_contents)}}</td><td class="number">{{format_size(one.total)}}</td>
% if grid.has_plan:
<td class="number">{{format_size(one.planned)}}</td>
% end
</tr>
% end
</tbody></table></div>
% include("more.tpl", listed=grid.pairs, noun="pair")
</details>
% end
</section>
% if uncounted:
<p class="muted small">These sums are incomplete: transfers to <bdi>{{single_line(", ".join(uncounted), 400)}}</bdi> are not known, because a node was lost or does not answer.</p>
% end
