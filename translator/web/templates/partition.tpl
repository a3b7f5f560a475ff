<section class="block" id="partition">
<div class="section-head"><h2>Partition</h2><span class="muted">{{plural(measures.parts, "part")}} by {{single_line(measures.algorithm, 40)}}</span></div>
<dl class="figures">
<div><dt>Cut edges</dt><dd>{{format_count(measures.cut_edges)}} <small>of {{format_count(measures.edges)}}, {{f"{100 * measures.cut_edges / max(measures.edges, 1):.1f}"}} %</small></dd></div>
<div><dt>Data moved</dt><dd>{{format_quantity(measures.volume_moved)}}</dd></div>
<div><dt>Imbalance</dt><dd>{{f"{measures.imbalance:.1f}"}} <small>%</small></dd></div>
% if measures.lower_bound:
<div><dt>Completion</dt><dd>{{format_duration(measures.makespan)}} <small>{{f"{measures.makespan / measures.lower_bound:.2f}"}} times the lower bound</small></dd></div>
% end
<div><dt>Order of parts</dt><dd>{{"acyclic" if measures.acyclic else "cyclic"}}</dd></div>
</dl>
% if measures.note:
<p class="muted small block-small">{{single_line(measures.note, 400)}}</p>
% end
% if measures.parts > 1:
% heaviest = max(measures.loads, default=0) or 1
<div class="table parts" tabindex="0" role="region" aria-label="Parts"><table>
<thead><tr><th scope="col">Part</th><th scope="col" class="number">Drops</th><th scope="col" class="number">Load</th><th scope="col" class="grow"><span class="unseen">Share of the heaviest</span></th></tr></thead>
<tbody>
% for part, (load, drops) in enumerate(zip(loads.rows, measures.part_drops)):
<tr><th scope="row">{{part}}</th><td class="number">{{format_count(drops)}}</td><td class="number">{{format_quantity(load)}}</td>
<td><svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true"><rect class="load" width="{{round(100 * load / heaviest, 1)}}" height="1"/></svg></td></tr>
% end
</tbody></table></div>
% include("more.tpl", listed=loads, noun="part")
% end
</section>
