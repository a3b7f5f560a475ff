% name = view.session.session
% found = view.comparison
% rebase("page.tpl", title=f"Comparison of {shown_name(name, 80)}", here="Sessions", script="", sheet="compare.css")
<div class="page-head">
<div>
<p class="crumbs"><a href="/sessions">Sessions</a><span>/</span><a href="{{session_url(name)}}"><bdi>{{shown_name(name, 80)}}</bdi></a></p>
<h1>{{"Comparison of two sessions" if found else "Compare with another session"}}</h1>
% if found:
<p>{{found.verdict}}</p>
% else:
<p>What differs in graph, parameters, programs, times and failures between <bdi>{{shown_name(name, 80)}}</bdi> and another session.</p>
% end
</div>
% if found:
<div class="actions"><a class="button" href="{{compare_url(found.second.session, found.first.session)}}">Exchange</a><a class="button" href="{{address()}}">Another session…</a></div>
% end
</div>
% if not found:
% include("compare_choice.tpl", view=view, address=address)
% else:
% include("warnings.tpl", warnings=found.warnings)
% include("compare_sessions.tpl", found=found)
% include("compare_graph.tpl", found=found)
% include("compare_times.tpl", found=found)
% include("compare_causes.tpl", found=found)
% end
