% rebase("layout.tpl", title="Submit a graph", here="Submit", heading="Submit a graph", about="A logical graph from EAGLE, a list of drops, or a .dfg file. Nothing runs yet: the next page has its problems, a form of its parameters, its size and its partition, and the button that runs it.", script="submit.js")
% if translator:
<form class="block submit" method="post" action="{{translator}}/gen_pgt" enctype="multipart/form-data" id="submit">
<input type="hidden" name="algo" value="auto">
<input type="hidden" name="manager" value="{{target}}">
<label class="drop"><span>Drop a file here, or choose one</span>
<input type="file" name="json_data" accept=".graph,.json,.dfg" required></label>
<p class="actions"><button class="primary">Check and preview</button>
<span class="muted small">The translator at <bdi>{{translator}}</bdi> reads it.</span></p>
</form>
% else:
<section class="block"><div class="empty"><p>No translator of this cluster is known here.</p>
<p>Start one with <code>dropflow translator --to {{manager.url}}</code>, and this manager with <code>--translator</code> and its address; <code>dropflow up</code> starts both.</p></div></section>
% end
<section class="block"><h2>From the command line</h2>
<pre>dropflow submit GRAPH --to {{manager.url}}</pre></section>
