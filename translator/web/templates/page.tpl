% rebase("layout.tpl", title=title, here=here, aside="translator", footer=f"dropflow {version}")
{{!base}}
