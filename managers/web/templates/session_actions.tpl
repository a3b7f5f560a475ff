% name = session.session
<span class="badge"><span class="state {{session_style(session.status)}}" id="status">{{session.status.lower()}}</span></span>
% for action in session_actions(session):
% include("action.tpl", action=action, about=shown_name(name, 80), address=f"{session_url(name)}/{action.name}", fields={})
% end
<a class="button" href="{{session_url(name)}}/clone">Clone…</a>
<a class="button" href="{{compare_url(name)}}">Compare…</a>
