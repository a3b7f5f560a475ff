% rebase("page.tpl", title=title, here="Sessions", script="")
<form class="card" method="post" data-key>
<h1>{{title}}</h1>
<p><bdi>{{shown_name(session.session, 200)}}</bdi> is {{session.status.lower()}}: {{format_count(session.settled)}} of {{format_count(session.drops)}} drops are settled.</p>
<p class="muted">{{consequence}}</p>
% if asks_reason:
<p><label>Reason (others will see it)<input name="reason" maxlength="200" autocomplete="off"></label></p>
% end
<p class="actions"><button class="{{"danger primary" if is_harmful else "primary"}}" type="submit">{{button}}</button><a class="button" href="{{session_url(session.session)}}">Back</a></p>
</form>
