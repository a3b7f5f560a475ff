% for heading, groups in findings_by_severity(problems):
% quiet = groups[0].severity == "info"
% if quiet:
<details class="findings"><summary>{{heading}}</summary>
% end
<ul class="findings {{groups[0].severity}}">
% for group in groups:
<li class="note {{dict(error="error", warning="warning").get(str(group.severity), "")}}">
<header><h3>{{group.code}}</h3><span class="muted small"><span class="unseen">{{group.severity}} </span>\\
% if len(group.places) == 1:
<code><bdi>{{single_line(group.places[0][0], 200)}}</bdi></code>\\
% else:
{{plural(len(group.places), "place")}}\\
% end
</span></header>
% if group.text or len(group.places) == 1:
<p><bdi>{{single_line(group.text or group.places[0][1], 2000)}}</bdi></p>
% end
% if len(group.places) > 1:
% first, rest = group.first_and_more
<ul class="places">
% for where, text in first:
<li><code><bdi>{{single_line(where, 200)}}</bdi></code>{{" " if text else ""}}<bdi>{{single_line(text, 2000)}}</bdi></li>
% end
</ul>
% if rest:
<details><summary>{{format_count(len(rest))}} more</summary>
<ul class="places">
% for where, text in rest:
<li><code><bdi>{{single_line(where, 200)}}</bdi></code>{{" " if text else ""}}<bdi>{{single_line(text, 2000)}}</bdi></li>
% end
</ul></details>
% end
% end
% if group.hint:
<p class="hint"><bdi>{{single_line(group.hint, 1000)}}</bdi></p>
% end
</li>
% end
</ul>
% if quiet:
</details>
% end
% end
