% session = view.session
% name = session.session
% found = view.comparison
% rebase("session_frame.tpl", title=f"Comparison of {shown_name(name, 80)}", tab="", sheet="compare.css")
<section class="block"><div class="section-head"><h2>{{"Comparison of two sessions" if found else "Compare with another session"}}</h2>
% if found:
<span class="muted">{{found.verdict}}</span><a href="{{compare_url(found.second.session, found.first.session)}}">Exchange</a><a href="{{address()}}">Another session…</a>
% else:
<span class="muted">What differs in graph, parameters, programs, times and failures.</span>
% end
</div></section>
% if not found:
% include("compare_choice.tpl", view=view, address=address)
% else:
% include("warnings.tpl", warnings=found.warnings)
% include("compare_sessions.tpl", found=found)
% include("compare_graph.tpl", found=found)
% include("compare_times.tpl", found=found)
% include("compare_causes.tpl", found=found)
% end
