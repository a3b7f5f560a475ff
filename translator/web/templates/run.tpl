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
<details{{!"" if submission == usual_submission else " open"}}><summary>Options</summary>
<input type="hidden" name="options" value="yes">
<div class="fields block-small">
<label>Nodes with a copy of each result
<input type="number" name="replicas" min="1" max="100" value="{{submission.replicas}}" required></label>
<label>Copy what took longer than, seconds
<input type="number" name="protect" min="0" step="any" value="{{f"{submission.protect:g}" if submission.protect else ""}}" placeholder="nothing"></label>
<label>Start nothing that cannot end by, UTC
<input type="datetime-local" name="until" value="{{until_text(submission.until)}}"></label>
<label>Repeats after a worker died
<input type="number" name="infrastructure_retries" min="0" max="1000000" value="{{submission.infrastructure_retries}}" required></label>
</div>
<fieldset class="block-small"><legend class="unseen">More options</legend>
<label class="choice"><input type="checkbox" name="join" value="yes"{{!" checked" if submission.join else ""}}> Nodes that come later take a share</label>
<label class="choice"><input type="checkbox" name="fuse" value="yes"{{!" checked" if submission.fuse else ""}}> Chains of applications run as one unit</label>
<label class="choice"><input type="checkbox" name="check" value="yes"{{!" checked" if submission.check else ""}}> Check all state after every step (slow)</label>
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
