% rebase("layout.tpl", title="Sessions", here="Sessions", heading="Sessions", script="page.js")
<section class="block" aria-label="List of sessions">
<form class="filters few" method="get" action="/sessions" data-parts="sessions">
% if view.query.sort:
<input type="hidden" name="sort" value="{{view.query.sort}}">
% end
<label>Name or graph<input type="search" name="text" value="{{view.query.text}}" maxlength="200"></label>
<label>Status<select name="status"><option value="">any</option>
% for status in statuses:
<option value="{{status}}"{{" selected" if status == view.query.status.upper() else ""}}>{{status.lower()}}</option>
% end
</select></label>
<button type="submit">Show</button>
</form>
<div data-part="sessions">
% if view.sessions:
% include("sessions_table.tpl", sessions=view.sessions, sort=view.query.sort, sort_address=sort_address)
% include("pager.tpl", label="Pages of sessions", things="sessions", offset=view.query.offset, limit=view.query.limit, total=view.total, address=address)
% elif view.total or view.query.text or view.query.status or view.query.offset:
<div class="empty"><p>No session matches.</p><p><a href="/sessions">Show all</a></p></div>
% else:
<div class="empty"><p>No session yet.</p><p><a class="button primary" href="/submit">Submit a graph</a></p><p><code>dropflow submit GRAPH --to {{manager.url}}</code></p></div>
% end
% if any(one.text for one in view.users):
<ul class="small muted" aria-label="What users with limits run">
% for one in view.users:
% if one.text:
<li><bdi>{{one.user}}</bdi>: {{one.text}}</li>
% end
% end
</ul>
% end
</div>
</section>
