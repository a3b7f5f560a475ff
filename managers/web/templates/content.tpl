<section class="block content" id="data" aria-labelledby="data-title">
<div class="section-head"><h2 id="data-title">Content</h2><span class="muted">{{data.format + ", " if data.format else ""}}{{format_size(data.size)}}{{", the beginning" if data.is_cut else ""}}</span><a href="{{address}}" download>Download</a></div>
% if data.trouble:
<div class="note warning block-small"><p><bdi>{{single_line("It cannot be shown: " + data.trouble, 1000)}}.</bdi></p></div>
% end
% has_form = data.parts or data.planes > 1 or (data.kind == "array" and data.width) or data.kind == "table"
% if has_form:
<form class="content-form" method="get" action="{{own}}#data">
% if data.parts:
<label>Part<select name="part">
% for at, part in enumerate(data.parts):
<option value="{{at}}"{{" selected" if at == data.part else ""}}>{{shown_name(part, 60)}}</option>
% end
</select></label>
% end
% if data.is_complex:
<label>Of complex values<select name="number">
% for value in ("amplitude", "phase"):
<option value="{{value}}"{{" selected" if value == query.number else ""}}>{{value}}</option>
% end
</select></label>
% end
% if data.planes > 1:
<label>Plane, of {{format_count(data.planes)}}<input type="number" name="plane" min="0" max="{{data.planes - 1}}" value="{{data.plane}}"></label>
% end
% if data.width:
<label>Brightness<select name="stretch">
% for value, word in (("linear", "linear"), ("sqrt", "square root"), ("log", "logarithm"), ("asinh", "asinh")):
<option value="{{value}}"{{" selected" if value == query.stretch else ""}}>{{word}}</option>
% end
</select></label>
<label>Values<select name="keep">
% for value, word in (("99.5", "99.5 %"), ("95", "95 %"), ("100", "all")):
<option value="{{value}}"{{" selected" if float(value) == query.keep else ""}}>{{word}}</option>
% end
</select></label>
<label>Colours<select name="colours">
% for value in ("grey", "colour"):
<option value="{{value}}"{{" selected" if value == query.colours else ""}}>{{value}}</option>
% end
</select></label>
% end
% if data.kind == "table":
<label>Rows where<select name="column">
<option value="">all rows</option>
% for name in data.columns:
<option value="{{name}}"{{" selected" if name == query.column else ""}}>{{shown_name(name, 60)}}</option>
% end
</select></label>
<label>Condition<select name="condition">
% for value in ("contains", "is", "is not", "less", "greater"):
<option value="{{value}}"{{" selected" if value == query.condition else ""}}>{{value}}{{" than" if value in ("less", "greater") else ""}}</option>
% end
</select></label>
<label>Value<input name="value" maxlength="300" value="{{query.value}}"></label>
<label>Sorted by<select name="sort">
<option value="">as in the file</option>
% for name in data.columns:
<option value="{{name}}"{{" selected" if name == query.sort else ""}}>{{shown_name(name, 60)}}</option>
% end
</select></label>
<label>Order<select name="order">
% for value in ("ascending", "descending"):
<option value="{{value}}"{{" selected" if value == query.order else ""}}>{{value}}</option>
% end
</select></label>
% end
<button type="submit">Show</button>
</form>
% end
% if data.kind == "nothing":
<p class="muted">It is empty.</p>
% elif data.kind == "picture" and not data.trouble:
<img class="preview" src="{{picture}}" alt="Content of {{shown_name(title, 120)}}">
% end
% if data.kind in ("array", "header", "directory", "picture", "table") and (data.facts or data.width or plot):
<div class="content-array{{" has-picture" if data.width else ""}}">
% if data.width:
% times = max(1, min(384 // max(data.width, data.height), 48))
% side = max(data.across, data.down)
% whole = min(1024 / side, 1) if side > 384 else min(384 // side, 48)
<figure class="viewer" id="viewer" tabindex="0" role="group" aria-label="Picture: plus and minus zoom, arrows move" data-preview="{{api_url(session, oid, "preview")}}" data-picture="{{picture_url(session, oid)}}" data-across="{{data.across}}" data-down="{{data.down}}" data-region="{{" ".join(map(str, data.region))}}" data-width="{{round(data.across * whole)}}">
<div class="frame"><img class="preview{{" pixels" if times > 1 else ""}}" src="{{picture}}" width="{{data.width * times}}" height="{{data.height * times}}" alt="Picture of {{shown_name(title, 120)}}, {{data.width}} × {{data.height}} pixels"></div>
<figcaption><div class="scale {{query.colours}}" role="img" aria-label="From {{f"{data.scale[0]:.4g} to {data.scale[-1]:.4g}" if data.scale else "no number"}}"></div>
<div class="ticks">
% for value in data.scale:
<span>{{f"{value:.4g}"}}</span>
% end
</div>
<output></output></figcaption>
</figure>
% elif plot:
% include("line_plot.tpl", plot=plot, title=title)
% end
% if data.facts:
<dl class="facts">
% for word, value in data.facts:
<dt>{{single_line(word, 60)}}</dt><dd><bdi>{{single_line(value, 200)}}</bdi></dd>
% end
</dl>
% end
</div>
% end
% if data.kind == "table" or data.columns:
% shown = bool(data.kind == "table" or not data.width and not plot)
% if not shown:
% lines = {"File": "files", "Subtable": "subtables"}.get(data.columns[0], "columns")
<details class="block-small" data-row="table"><summary>{{format_count(len(data.rows))}} {{lines}}</summary>
% end
<div class="table tall content-table" tabindex="0" role="region" aria-label="Content as a table"><table>
<thead><tr>
% for column in data.columns:
<th scope="col"><bdi>{{shown_name(column, 120)}}</bdi></th>
% end
</tr></thead>
<tbody>
% for row in data.rows:
<tr>
% for value in row:
<td><bdi>{{single_line(value, 300)}}</bdi></td>
% end
</tr>
% end
</tbody></table></div>
% if not shown:
</details>
% end
% end
% if data.kind in ("text", "code"):
% include("code.tpl", text=data.text)
% elif data.kind == "dump":
<pre class="exact" tabindex="0">{{data.text}}</pre>
% end
% if data.header:
<details class="block-small" data-row="header"{{" open" if data.kind == "header" else ""}}><summary>Header</summary><pre class="exact" tabindex="0">{{data.header}}</pre></details>
% end
<div class="notes muted small">
% for note in data.notes:
<p>{{single_line(note, 500)}}</p>
% end
</div>
% if data.width:
<script type="module" src="/static/viewer.js"></script>
% end
</section>
