% own = f"ask-{action.name}"
<button type="button" class="{{"danger" if action.is_harmful else ""}}" popovertarget="{{own}}" data-row="{{action.name}}">{{action.word}}…</button>
<form class="card" id="{{own}}" popover method="post" action="{{address}}" aria-labelledby="{{own}}-title" data-key data-row="{{own}}">
<h2 id="{{own}}-title">{{action.word}}: <bdi>{{about}}</bdi></h2>
<p>{{action.consequence}}</p>
% for key, value in fields.items():
<input type="hidden" name="{{key}}" value="{{value}}">
% end
% if action.asks_reason:
<label>Reason (others will see it)<input name="reason" maxlength="200" autocomplete="off"></label>
% end
% include("fields.tpl", fields=value_fields(get("parameters", {})))
<p class="actions"><button class="{{"danger primary" if action.is_harmful else "primary"}}">{{action.button}}</button><button type="button" popovertarget="{{own}}" popovertargetaction="hide">Back</button></p>
</form>
