% best = min((one.makespan for one in report.plans if not one.problem), default=0)
% least = min((one.bytes_moved for one in report.plans if not one.problem), default=0)
<section class="block" id="plans">
<div class="section-head"><h2>Plans</h2><span class="muted">{{plural(info.parts, "part")}}, imbalance {{f"{info.imbalance:g}"}} %</span></div>
<div class="table" tabindex="0" role="region" aria-label="Plans of all algorithms"><table>
<thead><tr><th scope="col">Algorithm</th><th scope="col" class="number at-middle">Nodes</th><th scope="col" class="number">Completion, s</th><th scope="col" class="number at-middle">Of the bound</th><th scope="col" class="number">Data moved</th><th scope="col" class="number at-wide">Imbalance, %</th><th scope="col" class="number at-wide">Planning, s</th><th scope="col"><span class="unseen">Choice</span></th></tr></thead>
<tbody>
% for one in report.plans:
<tr><th scope="row">{{one.algorithm}}
% for text in one.violations:
<span class="sub">{{single_line(text, 300)}}</span>
% end
</th>
% if one.problem:
<td colspan="7" class="muted">{{single_line(one.problem, 300)}}</td>
% else:
<td class="number at-middle">{{format_count(one.nodes_used)}}</td>
<td class="number">{{!"<b>" if one.makespan <= best else ""}}{{format_quantity(one.makespan)}}{{!"</b>" if one.makespan <= best else ""}}</td>
<td class="number at-middle">{{f"{one.makespan / one.lower_bound:.3f}" if one.lower_bound else "1"}}</td>
<td class="number">{{!"<b>" if one.bytes_moved <= least else ""}}{{format_quantity(one.bytes_moved)}}{{!"</b>" if one.bytes_moved <= least else ""}}</td>
<td class="number at-wide">{{f"{one.imbalance:.1f}"}}</td>
<td class="number at-wide">{{f"{one.seconds:.3g}"}}</td>
<td>\\
% if one.algorithm == info.algorithm:
<span class="muted">chosen</span>\\
% else:
<form method="post" action="/translations/{{info.id}}/again"><input type="hidden" name="algorithm" value="{{one.algorithm}}"><button aria-label="Choose {{one.algorithm}}">Choose</button></form>\\
% end
</td>
% end
</tr>
% end
</tbody></table></div>
<p class="muted small after">The best figures are bold. Nodes are equal, with one core each. Deploying with one part for each node plans again, by the chosen algorithm, for the nodes as they are then.</p>
</section>
