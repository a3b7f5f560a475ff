% session = view.session
% name = session.session
% rebase("page.tpl", title=f"Causes of {shown_name(name, 80)}", here="Sessions", script="page.js" if not session.is_over else "")
<div class="page-head">
<div>
<p class="crumbs"><a href="/sessions">Sessions</a><span>/</span><a href="{{session_url(name)}}"><bdi>{{shown_name(name, 80)}}</bdi></a></p>
<h1>Root causes</h1>
<p>{{failed_words(session.counts)}}</p>
</div>
<span class="live" id="live" role="status" data-state="off" hidden></span>
</div>
<div data-part="causes">
% include("warnings.tpl", warnings=view.warnings)
% found = causes(view.causes.failures)
<h2 class="unseen">Causes</h2>
% for cause in found:
% include("failure.tpl", cause=cause, session=name)
% end
% if not found:
<div class="empty"><p>No drop failed.</p></div>
% end
% include("pager.tpl", label="Pages of causes", things="causes", offset=view.causes.offset, limit=view.causes.limit, total=view.causes.total, address=address)
</div>
