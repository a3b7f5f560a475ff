<div class="table" tabindex="0" role="region" aria-label="Sessions">
<table>
<thead><tr>
% include("sort_header.tpl", sort=sort, sort_address=sort_address, columns=(("Session", "session", ""), ("Status", "status", ""), ("Progress", "progress", "grow"), ("Rate", "rate", "number at-wide"), ("Time", "time", "number at-middle"), ("Begun", "begun", "at-wide")))
<th scope="col" class="at-wide"><span class="unseen">Compare</span></th>
</tr></thead>
<tbody>
% for session in sessions:
% numbers = grouped(session.counts)
<tr data-row="{{session.session}}">
<th scope="row" class="name"><a href="{{session_url(session.session)}}" title="{{shown_name(session.session, 1000)}}"><bdi class="clip">{{shown_name(session.session)}}</bdi></a>
<span class="sub clip" title="{{shown_name(session.graph, 1000)}}"><bdi>{{shown_name(session.graph)}}</bdi></span></th>
<td><span class="state {{session_style(session.status)}}">{{session.status.lower()}}</span></td>
<td class="grow">
% include("bar.tpl", numbers=numbers, big=False, label=f"{format_count(session.settled)} of {format_count(session.drops)} drops are settled")
<div class="bar-text"><span>{{format_count(session.settled)}} of {{format_count(session.drops)}}</span>\\
% if numbers["error"]:
<span>{{format_count(numbers["error"])}} in error</span>\\
% end
% if numbers["lost"]:
<span>{{format_count(numbers["lost"])}} lost</span>\\
% end
</div></td>
<td class="number at-wide">{{format_rate(session.rate) if session.rate else "–"}}</td>
<td class="number at-middle">{{format_duration(session.seconds)}}\\
% if session.time_left:
<span class="sub">{{session.time_left}}</span>\\
% end
</td>
<td class="nowrap at-wide muted">{{format_time(session.created)}}\\
% if session.user:
<span class="sub">by <bdi>{{session.user}}</bdi></span>\\
% end
</td>
<td class="nowrap at-wide small"><a href="{{compare_url(session.session)}}" aria-label="Compare {{shown_name(session.session, 80)}} with another session">Compare</a></td>
</tr>
% end
</tbody>
</table>
</div>
