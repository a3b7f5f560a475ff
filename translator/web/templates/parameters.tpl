<section class="block" id="parameters">
<div class="section-head"><h2>Parameters</h2><span class="muted">{{plural(len(form.parameters), "parameter")}}</span></div>
<form method="post" action="/translations/{{info.id}}/fill" class="sheet parameters">
% if form.configurations:
<label>Configuration
<select name="configuration">
<option value="">{{"none" if form.configuration else "as it is"}}</option>
% for name in form.configurations:
<option value="{{name}}"{{!" selected" if name == form.configuration else ""}}>{{single_line(name, 120)}}</option>
% end
</select></label>
% end
% for one in form.parameters[:most_parameters]:
% value, is_number = form.shown(one), is_numeric_input(one, form.shown(one))
<label><span><bdi>{{single_line(one.name, 120)}}</bdi> <span class="muted small">{{single_line(one.type, 40)}}{{range_text(one)}}</span></span>
% choices = one.options or (("true", "false") if one.type == "Boolean" else ())
% if choices:
<select name="{{prefix}}{{one.name}}">
% if value not in choices:
<option value="{{value}}" selected>{{value or "to be chosen"}}</option>
% end
% for choice in choices:
<option{{!" selected" if choice == value else ""}}>{{choice}}</option>
% end
</select>
% elif is_number:
<input type="number" name="{{prefix}}{{one.name}}" value="{{value}}" step="{{1 if one.type == "Integer" else "any"}}"{{!f' min="{one.minimum:g}"' if one.minimum is not None else ""}}{{!f' max="{one.maximum:g}"' if one.maximum is not None else ""}}{{!" required" if one.value is None and one.used_in and not form.configurations else ""}}>
% else:
<input name="{{prefix}}{{one.name}}" value="{{value}}" autocomplete="off" spellcheck="false"{{!" required" if one.value is None and one.used_in and not form.configurations else ""}}>
% end
% if one.description:
<span class="muted small"><bdi>{{single_line(one.description, 500)}}</bdi></span>
% end
% if one.used_in:
<span class="muted small">used by <bdi>{{single_line("; ".join(one.used_in[:3]), 300)}}</bdi>{{f" and {len(one.used_in) - 3} more" if len(one.used_in) > 3 else ""}}</span>
% end
</label>
% end
% if len(form.parameters) > most_parameters:
<p class="muted small">and {{plural(len(form.parameters) - most_parameters, "parameter")}} more, for <code>dropflow fill</code>.</p>
% end
<p class="actions"><button{{!' class="primary"' if info.needs_values else ""}}>Translate with these values</button></p>
</form>
</section>
