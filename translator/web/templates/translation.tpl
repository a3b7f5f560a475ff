% state_name = "Template" if info.needs_values else dict(done="Translated", refused="Refused", failed="Failed", running="Translating", waiting="Waiting")[info.state]
% state_looks = "waiting" if info.needs_values else dict(done="completed", refused="error", failed="error", running="running").get(info.state, "waiting")
% about = f"{single_line(report.family, 40)} graph" + (f", as {plural(info.parts, 'part')} by {single_line(info.algorithm, 40)}" if info.state == "done" else "") if report and report.family else ""
% rebase("layout.tpl", title=single_line(info.name, 60), here="", heading=single_line(info.name, 200), about=about, crumbs=(("Translate", "/"),), controls="translation_state.tpl", refresh=get("refresh", ""))
% if refused:
<section class="block" id="refused"><div class="note error" role="alert">
% if refused.problems:
<header><h3>The nodes refuse this graph</h3></header>
<p>Nothing was started. What is wrong with it:</p>
% else:
<header><h3>This failed</h3></header>
<p><bdi>{{single_line(refused.where + ": " if refused.where else "", 300)}}{{single_line(refused.text, 2000)}}</bdi></p>
% end
% if refused.hint and not refused.problems:
<p class="hint"><bdi>{{single_line(refused.hint, 1000)}}</bdi></p>
% end
</div>
% include("findings.tpl", problems=refused.problems)
</section>
% end
% if forecast:
% include("forecast.tpl", forecast=forecast, reuses=reuses, nodes=forecast_nodes)
% end
% if not report:
<section class="block waiting" role="status">
<p>{{single_line(info.stage or "waiting", 200)}}…</p>
<progress aria-label="Translating"></progress>
<p class="muted small">This page is loaded again every second.</p>
</section>
% else:
% if info.state == "failed" and not info.errors:
<section class="block"><div class="note error">
<header><h3>The translation failed</h3><span class="muted small">{{report.error.code if report.error else ""}}</span></header>
<p><bdi>{{single_line(report.error.text if report.error else "", 2000)}}</bdi></p>
% if report.error and report.error.hint:
<p class="hint"><bdi>{{single_line(report.error.hint, 1000)}}</bdi></p>
% end
</div></section>
% end
% if info.needs_values:
<section class="block"><div class="note">
<header><h3>This graph is a template</h3></header>
<p>Some of its parameters have no value. Give them values, and translate it.</p>
</div></section>
% end
% if info.can_repartition or report.form:
% include("launch.tpl", info=info, groups=groups, managers=managers)
% end
% if info.has_sizes:
<section class="block" aria-label="Summary">
<dl class="figures">
<div><dt>Drops</dt><dd>{{format_count(report.drops)}}</dd></div>
<div><dt>Data drops</dt><dd>{{format_count(report.data_drops)}}</dd></div>
<div><dt>Applications</dt><dd>{{format_count(report.app_drops)}}</dd></div>
<div><dt>Edges</dt><dd>{{format_count(report.edges)}}</dd></div>
% if info.state == "done":
<div><dt>Levels</dt><dd>{{format_count(report.levels)}}</dd></div>
<div><dt>Critical path</dt><dd>{{format_quantity(report.critical_path)}} <small>s</small></dd></div>
<div><dt>In memory</dt><dd>{{format_size(report.bytes)}}</dd></div>
% end
</dl>
% if info.state == "done":
<p class="block-small"><a class="button" href="/translations/{{info.id}}/graph">Show the graph</a></p>
% end
% if info.state != "done":
<p class="muted small">The sizes that the graph would have.</p>
% end
</section>
% end
% if report.problems:
<section class="block" id="problems">
<div class="section-head"><h2>Findings</h2><span class="muted">{{" · ".join(heading for heading, _ in findings_by_severity(report.problems))}}</span></div>
% include("findings.tpl", problems=report.problems)
% if report.omitted:
<p class="muted">{{plural(report.omitted, "more finding")}}.</p>
% end
</section>
% end
% if report.plans:
% include("plans.tpl", info=info, report=report)
% end
% if report.measures:
% include("partition.tpl", measures=report.measures, loads=loads)
% end
% if report.nodes and info.has_sizes:
% include("counts.tpl", nodes=nodes, links=links)
% end
% if info.state == "done":
<section class="block" id="downloads">
<div class="section-head"><h2>Download</h2></div>
<ul class="downloads">
<li><a class="button" href="/translations/{{info.id}}/graph.dfg" download>Physical graph, .dfg</a><span class="muted small">compact, for <code>dropflow run</code> and <code>submit</code></span></li>
<li><a class="button" href="/translations/{{info.id}}/pg.json" download>Physical graph, JSON</a><span class="muted small">a list of drops, as DALiuGE writes it</span></li>
<li><span class="muted small">for other programs</span> <a href="/translations/{{info.id}}/graph.dot" download>DOT</a> <a href="/translations/{{info.id}}/graph.graphml" download>GraphML</a> <a href="/translations/{{info.id}}/graph.csv" download>CSV of drops</a> <a href="/translations/{{info.id}}/graph.edges.csv" download>CSV of edges</a></li>
<li><a class="button" href="/translations/{{info.id}}/source" download>Source</a><span class="muted small">the graph before translation</span></li>
</ul>
<p class="muted small digest">Digest <code>{{report.digest}}</code></p>
</section>
% end
% end
