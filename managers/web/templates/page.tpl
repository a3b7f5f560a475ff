% rebase("layout.tpl", title=f"{title} · {shown_name(manager.name, 60)}", here=here, script=script, aside=shown_manager(manager), footer=f"dropflow {manager.version} on {shown_name(manager.host, 80)}", as_of=manager.time)
{{!base}}
