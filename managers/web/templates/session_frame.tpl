% name = session.session
% about = f"{shown_name(session.graph, 80)}, begun {format_time(session.started or session.created)}"
% rebase("layout.tpl", title=title, here="Sessions", heading=name, about=about, crumbs=SESSIONS, tabs=session_tabs(name), tab=tab, controls="session_actions.tpl", script=get("script", ""))
{{!base}}
