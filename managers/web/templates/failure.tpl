<article class="note error" data-row="{{failure.drop or failure.node}}">
<header><h3>
% if failure.drop:
<a href="{{drop_url(session, failure.drop)}}"><bdi>{{shown(failure.name, 120)}}</bdi></a>
% else:
Node <bdi>{{shown(failure.name, 120)}}</bdi>
% end
</h3>
<span class="muted small">{{failure.code}} <bdi>{{shown(failure.kind, 80)}}</bdi>\\
% if failure.node and failure.drop:
 on <bdi>{{shown(failure.node, 80)}}</bdi>\\
% end
% if failure.attempts > 1:
, {{failure.attempts}} attempts\\
% end
</span>
<span class="count">{{count(failure.count)}} {{"drop" if failure.count == 1 else "drops"}} in error because of it</span>
</header>
<p class="clip-long"><bdi>{{shown(failure.text, 4000)}}</bdi></p>
% if failure.hint:
<p class="hint"><bdi>{{shown(failure.hint, 2000)}}</bdi></p>
% end
% if failure.detail:
<details><summary>Details</summary><pre>{{failure.detail}}</pre></details>
% end
% if failure.drops:
<details><summary>Drops that were not settled</summary>
<p class="small">
% for drop in failure.drops:
<a href="{{drop_url(session, drop)}}"><bdi>{{shown(drop, 120)}}</bdi></a>\\
% end
</p></details>
% end
% if failure.has_log and failure.drop:
<p class="small"><a href="{{api_url(session, failure.drop, "log")}}">Log</a></p>
% end
</article>
