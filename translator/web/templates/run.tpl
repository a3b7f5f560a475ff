<section class="block two" id="run">
<div class="sheet">
<h2>Run it</h2>
% if managers:
<form method="post" action="/translations/{{info.id}}/deploy" class="stack" data-key>
<label>Manager
<select name="manager">
% for manager in managers:
<option{{!" selected" if manager == wanted else ""}}>{{manager}}</option>
% end
</select></label>
<label>Session
<input name="session" maxlength="100" autocomplete="off" placeholder="named after the graph" value="{{session}}"></label>
<fieldset><legend>Parts</legend>
<label class="choice"><input type="radio" name="spread" value="yes"{{!" checked" if report.measures.parts == 1 else ""}}> One for each node that is alive</label>
<label class="choice"><input type="radio" name="spread" value="no"{{!" checked" if report.measures.parts != 1 else ""}}> The {{plural(report.measures.parts, "part")}} below, node after node</label>
</fieldset>
<details{{!"" if is_usual else " open"}}><summary>Options</summary>
<input type="hidden" name="options" value="yes">
<div class="fields block-small">
% for field in options:
% if not field.is_box:
<label>{{field.title}}
<input type="{{field.kind}}" name="{{field.name}}"\\
% if field.least is not None:
 min="{{f"{field.least:g}"}}"\\
% end
% if field.most is not None:
 max="{{field.most}}"\\
% end
 value="{{field.value}}"\\
% if field.placeholder:
 step="any" placeholder="{{field.placeholder}}"\\
% end
></label>
% end
% end
</div>
<fieldset class="block-small"><legend class="unseen">More options</legend>
% for field in options:
% if field.is_box:
<label class="choice"><input type="checkbox" name="{{field.name}}" value="yes"{{!" checked" if field.value else ""}}> {{field.title}}</label>
% end
% end
</fieldset>
</details>
<p class="actions"><button class="primary">Deploy and watch</button></p>
</form>
% else:
<p class="muted">No manager is configured. Start it with <code>--to</code> and the address of one, or submit the download:</p>
<pre>dropflow submit GRAPH.dfg --to http://HOST:8002</pre>
% end
</div>
<div class="sheet">
<h2>Download</h2>
<ul class="downloads">
<li><a class="button" href="/translations/{{info.id}}/graph.dfg" download>Physical graph, .dfg</a><span class="muted small">compact, for <code>dropflow run</code> and <code>submit</code></span></li>
<li><a class="button" href="/translations/{{info.id}}/pg.json" download>Physical graph, JSON</a><span class="muted small">a list of drops, as DALiuGE writes it</span></li>
<li><span class="muted small">for other programs</span> <a href="/translations/{{info.id}}/graph.dot" download>DOT</a> <a href="/translations/{{info.id}}/graph.graphml" download>GraphML</a> <a href="/translations/{{info.id}}/graph.csv" download>CSV of drops</a> <a href="/translations/{{info.id}}/graph.edges.csv" download>CSV of edges</a></li>
<li><a class="button" href="/translations/{{info.id}}/source" download>Source</a><span class="muted small">the graph before translation</span></li>
</ul>
<p class="muted small digest">Digest <code>{{report.digest}}</code></p>
</div>
</section>
