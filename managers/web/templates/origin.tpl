% origin = view.origin
% name = origin.session
% rebase("layout.tpl", title=f"Origin of {shown_name(origin.name, 80)}", here="Sessions", heading=f"Origin of {shown_name(origin.name, 200)}", about=f"Upstream of it are {plural(origin.total - 1, 'drop')} of {plural(origin.nodes.total, 'logical node')}, back to {plural(origin.roots, 'root')}. Drops that failed or were skipped are among them.", crumbs=(*SESSIONS, (shown_name(name, 80), session_url(name)), (shown_name(origin.name, 80), drop_url(name, origin.oid))), sheet="compare.css")
% def checked(size, checksum):
{{format_size(size)}}, {{"no checksum" if checksum is None else f"CRC-32 {checksum:08x}"}}\\
% end
% include("warnings.tpl", warnings=view.warnings)
<div class="block"><dl class="facts">
<dt>Digest of the graph</dt><dd class="mono">{{origin.graph}}</dd>
<dt>With parameters</dt><dd class="mono">{{origin.parameters}}</dd>
<dt>Software</dt><dd>{{", ".join(f"{program} {version}" for program, version in origin.software.items()) or "not recorded"}}</dd>
% if origin.size is not None:
<dt>Content</dt><dd>\\
% checked(origin.size, origin.checksum)
</dd>
% end
</dl></div>
<section class="block" aria-labelledby="nodes-title">
<div class="section-head"><h2 id="nodes-title">Logical nodes</h2><span class="muted">the nearest first; the number is how many edges away they are</span></div>
% for one in origin.nodes.rows:
<article class="origin-node">
<div class="section-head"><span class="away">{{one.away}}</span><h3><bdi>{{shown_name(one.name, 120)}}</bdi></h3><span class="muted"><bdi>{{shown_name(one.component or one.category, 160)}}</bdi></span></div>
<p class="muted small">{{f"{format_count(one.drops)} of {plural(one.all_drops, 'drop')}" if one.drops < one.all_drops else plural(one.drops, "drop")}}\\
% if one.attempts:
, {{plural(one.attempts, "attempt")}}{{f", {format_count(one.failed)} failed" if one.failed else ""}}, ran {{format_brief(one.seconds)}} on <bdi>{{single_line(", ".join(one.nodes), 300)}}</bdi>\\
% end
</p>
% shown = [pair for pair in one.parameters if pair[1]]
% if shown:
<details><summary>{{plural(len(shown), "parameter")}}</summary>
<dl class="facts small">
% for key, value in shown:
<dt><bdi>{{shown_name(key, 120)}}</bdi></dt><dd class="mono"><bdi>{{value}}</bdi></dd>
% end
</dl></details>
% end
</article>
% end
% include("more.tpl", listed=origin.nodes, noun="logical node")
</section>
<section class="block" aria-labelledby="drops-title">
<div class="section-head"><h2 id="drops-title">Drops</h2><span class="muted">itself, then the nearest first</span></div>
% if origin.drops:
<div class="table" tabindex="0" role="region" aria-label="Drops on the way"><table>
<thead><tr><th scope="col" class="number">Away</th><th scope="col">Drop</th><th scope="col">State</th><th scope="col" class="at-middle">Digest</th><th scope="col">Attempts, or content</th></tr></thead>
<tbody>
% for one in origin.drops:
<tr data-row="{{one.drop}}"><td class="number"><span class="away">{{one.away}}</span></td><th scope="row"><a href="{{drop_url(name, one.oid)}}"><bdi class="clip">{{shown_name(one.name, 120)}}</bdi></a><span class="sub mono clip at-middle"><bdi>{{shown_name(one.oid, 160)}}</bdi></span></th><td>\\
% if one.state:
<span class="state {{state_style(one.state)}}" title="{{one.state}}">{{state_word(one.state)}}</span>\\
% else:
<span class="muted">not known</span>\\
% end
</td><td class="mono at-middle" title="{{one.digest}}">{{one.digest[:16]}}</td><td>\\
% for each in one.attempts:
<span class="nowrap">{{"failed: " if each.failed else ""}}attempt {{each.attempt}}, {{format_brief(each.ran)}}</span><span class="sub"><bdi>{{shown_name(each.node, 80)}}</bdi>, {{format_time(each.began)}}</span>\\
% end
% if one.size is not None:
% checked(one.size, one.checksum)
% elif not one.attempts:
<span class="muted">–</span>\\
% end
</td></tr>
% end
</tbody></table></div>
% else:
<div class="empty"><p>No drop is on this page.</p><p><a href="{{address(0)}}">Show the first ones</a></p></div>
% end
% include("pager.tpl", label="Pages of drops", things="drops", offset=origin.offset, limit=origin.limit, total=origin.total, address=address)
</section>
