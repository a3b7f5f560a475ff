% address = f"{session_url(name)}/retry"
% label = shown_name(drop_label(drop.name, drop.oid), 80)
% if view.can_try_again:
% include("action.tpl", action=TRY_AGAIN, about=label, address=address, fields={"drop": drop.oid})
% end
% if view.can_run_again:
% include("action.tpl", action=RUN_AGAIN, about=label, address=address, fields={"start": drop.oid}, parameters=drop.parameters if drop.is_app else {})
% end
<a class="button" href="{{session_url(name)}}/graph#drop={{drop.drop}}">Show it in the graph</a>
<a class="button" href="{{origin_url(name, drop.oid)}}">Origin</a>
