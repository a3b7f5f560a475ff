% name = session.session
% rebase("session_frame.tpl", title=f"Clone {shown_name(name, 80)}", tab="")
<p class="block-small">A new session runs the graph of <bdi>{{shown_name(name, 80)}}</bdi> again. This one does not change.</p>
<section class="block" aria-labelledby="values-title">
<h2 id="values-title">With other values</h2>
% if refusal:
<p>{{refusal}}</p>
% else:
<p>The next page has the options of this session, a form of the parameters with its values if the graph declares any, and the button that runs it.</p>
% if note.configuration or note.settings:
<dl class="facts block-small">
% if note.configuration:
<dt>Configuration</dt><dd><bdi>{{single_line(note.configuration, 200)}}</bdi></dd>
% end
% for setting in note.settings:
% address, _, value = setting.partition("=")
<dt><bdi>{{shown_name(address.removeprefix("global."), 120)}}</bdi></dt><dd class="mono"><bdi>{{single_line(value, 500)}}</bdi></dd>
% end
</dl>
% end
<form class="block-small" method="post" action="{{translator}}/gen_pgt" id="clone">
<input type="hidden" name="lg_name" value="{{session.graph}}">
<input type="hidden" name="algo" value="auto">
<input type="hidden" name="manager" value="{{target}}">
<input type="hidden" name="configuration" value="{{note.configuration}}">
<input type="hidden" name="submission" value="{{submission}}">
<input type="hidden" name="planning" value="{{planning}}">
<textarea name="settings" hidden>{{"\n".join(note.settings)}}</textarea>
<textarea name="json_data" hidden>{{document}}</textarea>
<p class="actions"><button class="primary">Change the values…</button></p>
</form>
% end
</section>
<section class="block" aria-labelledby="same-title">
<h2 id="same-title">As it is</h2>
<p>The same {{format_count(session.whole or session.drops)}} drops with the same options, on the nodes that are there now.</p>
<form method="post" action="{{session_url(name)}}/clone" data-key>
<p class="actions"><button>Run it again</button></p>
</form>
</section>
