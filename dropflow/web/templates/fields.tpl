% for field in fields:
% required = " required" if field.is_required else ""
% if field.kind == "checkbox":
<label class="choice"><input type="checkbox" name="{{field.name}}" value="yes"{{" checked" if field.value else ""}}> {{field.title}}</label>
% continue
% end
<label><span><bdi>{{shown_name(field.title, 120)}}</bdi>\\
% if field.note:
 <span class="muted small">{{field.note}}</span>\\
% end
</span>
% if field.choices:
<select name="{{field.name}}"{{required}}>
% for choice in field.choices if field.value in field.choices else (field.value, *field.choices):
<option value="{{choice}}"{{" selected" if choice == field.value else ""}}>{{single_line(choice, 120) or field.placeholder}}</option>
% end
</select>
% elif field.kind == "lines":
<textarea name="{{field.name}}" rows="{{min(max(field.value.count("\n") + 2, 4), 24)}}" spellcheck="false" class="mono">
{{field.value}}</textarea>
% else:
<input type="{{field.kind}}" name="{{field.name}}" value="{{field.value}}" placeholder="{{field.placeholder}}" autocomplete="off" spellcheck="false"\\
% for limit, number in (("min", field.least), ("max", field.most)):
% if number is not None:
 {{limit}}="{{f"{number:.12g}"}}"\\
% end
% end
% if field.step:
 step="{{field.step}}"\\
% end
{{required}}>
% end
% for line in field.help:
<span class="muted small"><bdi>{{single_line(line, 500)}}</bdi></span>
% end
</label>
% end
