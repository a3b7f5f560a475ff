% session = view.session
% name = session.session
% rebase("session_frame.tpl", title=f"Causes of {shown_name(name, 80)}", tab="", script="page.js" if not session.is_over else "")
<div data-part="causes" class="block">
% include("warnings.tpl", warnings=view.warnings)
% root_causes = causes(view.causes.failures)
<div class="section-head"><h2>Failures by root cause</h2><span class="muted">{{failed_words(session.counts)}}</span></div>
% for cause in root_causes:
% include("failure.tpl", cause=cause, session=name)
% end
% if not root_causes:
<div class="empty"><p>No drop failed.</p></div>
% end
% include("pager.tpl", label="Pages of causes", things="causes", offset=view.causes.offset, limit=view.causes.limit, total=view.causes.total, address=address)
</div>
