% name = view.session.session
<section class="block" aria-label="Sessions to compare with">
<form class="filters few" method="get" action="{{address()}}">
<label>Name or graph<input type="search" name="text" value="{{view.query.text}}" maxlength="200"></label>
<button type="submit">Show</button>
</form>
% if view.candidates:
<div class="table" tabindex="0" role="region" aria-label="Sessions"><table>
<thead><tr><th scope="col">Session</th><th scope="col">Status</th><th scope="col" class="number at-middle">Drops</th><th scope="col" class="number at-middle">Time</th><th scope="col" class="at-wide">Begun</th></tr></thead>
<tbody>
% for one in view.candidates:
<tr data-row="{{one.session}}"><th scope="row" class="name"><a href="{{address(one.session)}}"><bdi>{{shown_name(one.session, 120)}}</bdi></a><span class="sub clip"><bdi>{{shown_name(one.graph, 120)}}</bdi>{{", a graph of the same name" if one.graph == view.session.graph else ""}}</span></th><td><span class="state {{session_style(one.status)}}">{{one.status.lower()}}</span></td><td class="number at-middle">{{format_count(one.whole or one.drops)}}</td><td class="number at-middle">{{format_duration(one.seconds)}}</td><td class="nowrap at-wide muted">{{format_time(one.created)}}</td></tr>
% end
</tbody></table></div>
% if view.total > len(view.candidates):
<p class="muted small block-small">The first {{format_count(len(view.candidates))}} of {{format_count(view.total)}}; a text in the name finds others.</p>
% end
% elif view.query.text:
<div class="empty"><p>No other session matches.</p><p><a href="{{address()}}">Show all</a></p></div>
% else:
<div class="empty"><p>There is no other session yet.</p><p><a href="{{session_url(name)}}/clone">Clone this session</a></p></div>
% end
</section>
