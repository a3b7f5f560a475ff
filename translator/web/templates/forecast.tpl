<section class="block" id="forecast">
<div class="section-head"><h2>What would run</h2><span class="muted">{{plural(forecast.runs, "application")}} would run, {{format_count(forecast.waits)}} only if their inputs change, {{format_count(forecast.reused)}} reused</span></div>
% if not reuses:
<p>Without the option to take results of earlier runs, all of them run.</p>
% end
<div class="table tall" tabindex="0" role="region" aria-label="What would run"><table>
<thead><tr><th scope="col">Node</th><th scope="col" class="number">Runs</th><th scope="col" class="number">Waits</th><th scope="col" class="number">Reused</th><th scope="col">Why</th></tr></thead>
<tbody>
% for node in nodes.rows:
<tr><th scope="row"><bdi>{{single_line(node.node, 120)}}</bdi></th>
<td class="number">{{format_count(node.runs)}}</td>
<td class="number">{{format_count(node.waits)}}</td>
<td class="number">{{format_count(node.reused)}}</td>
<td><bdi>{{single_line("; ".join(node.reasons), 1000)}}</bdi></td></tr>
% end
</tbody></table></div>
% include("more.tpl", listed=nodes, noun="node")
% if forecast.seconds:
<p>Its price, as measured in earlier runs: {{format_duration(forecast.seconds)}} of applications ({{format_duration(forecast.seconds_least)}} to {{format_duration(forecast.seconds_most)}}), {{format_quantity(forecast.core_hours)}} core-hours ({{format_quantity(forecast.core_hours_least)}} to {{format_quantity(forecast.core_hours_most)}}).</p>
% end
% if forecast.unmeasured:
<p>{{plural(forecast.unmeasured, "application")}} that would run or wait never ran before, and may take any time.</p>
% end
<p class="muted small">By the result store and the code of the translator's host: on nodes with another store or other code, more runs.</p>
</section>
