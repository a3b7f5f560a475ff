% failure = cause.first
% alike = 1 + len(cause.rest)
<article class="note error" data-row="{{cause.row}}" data-causes="{{cause.keys}}">
<header><h3>
% if failure.drop:
<a href="{{failure_url(session, failure)}}"><bdi>{{shown_name(cause.name, 120)}}</bdi></a>\\
% if alike > 1:
 <span class="muted">and {{format_count(alike - 1)}} alike</span>\\
% end
% else:
Node <bdi>{{shown_name(failure.name, 120)}}</bdi>
% end
</h3>
<span class="muted small">{{failure.code}} <bdi>{{shown_name(failure.kind, 80)}}</bdi>\\
% if failure.node and failure.drop:
 on <bdi>{{shown_name(failure.node, 80)}}</bdi>\\
% end
% if failure.attempts > 1:
, {{failure.attempts}} attempts\\
% end
</span>
% if failure.has_log and failure.drop:
<a class="small" href="{{api_url(session, failure.drop, "log")}}">Log</a>
% end
<span class="count">{{cause.harm}}</span>
</header>
<p class="clip-long"><bdi>{{single_line(cause.text, 4000)}}</bdi></p>
% if failure.hint:
<p class="hint"><bdi>{{single_line(failure.hint, 2000)}}</bdi></p>
% end
% if failure.inputs:
<details data-row="inputs"><summary>Inputs</summary><ul class="plain small">
% for line in failure.inputs:
<li><bdi>{{line}}</bdi></li>
% end
</ul></details>
% end
% if failure.detail:
<details data-row="detail"><summary>Details</summary><pre tabindex="0">{{failure.detail}}</pre></details>
% end
% if cause.rest:
<details data-row="alike"><summary>{{format_count(alike - 1)}} alike</summary>
<ul class="plain small">
% for other in cause.rest:
<li data-row="{{other.drop}}"><a class="mono" href="{{failure_url(session, other)}}"><bdi>{{shown_name(other.drop, 120)}}</bdi></a> <span class="muted">{{format_count(other.count)}} in error</span></li>
% end
</ul></details>
% end
% if failure.drops:
<details data-row="open"><summary>Drops that were not settled</summary>
<ul class="plain small">
% for drop in failure.drops:
<li><a class="mono" href="{{drop_url(session, drop)}}"><bdi>{{shown_name(drop, 120)}}</bdi></a></li>
% end
</ul></details>
% end
</article>
