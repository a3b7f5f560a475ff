<section class="block" id="launch">
<form method="post" action="/translations/{{info.id}}/deploy" class="sheet stack" data-key>
<input type="hidden" name="options" value="yes">
% for group in groups:
% if group.fields:
<details{{" open" if group.is_open else ""}}><summary>{{group.title}}</summary>
<div class="parameters">
% include("fields.tpl", fields=group.fields)
</div></details>
% end
% end
<p class="actions">
% if managers:
<button class="primary">Deploy and watch</button>
<button formaction="/translations/{{info.id}}/forecast" data-key>Show what would run</button>
% end
<button formaction="/translations/{{info.id}}/again">Translate again</button>
<button formaction="/translations/{{info.id}}/again" name="compare" value="yes">Compare all plans</button>
</p>
% if not managers:
<p class="muted">No manager is configured. Start the translator with <code>--to</code> and the address of one, or submit the download: <code>dropflow submit GRAPH.dfg --to http://HOST:8002</code></p>
% end
</form>
</section>
