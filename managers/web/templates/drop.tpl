% drop = view.drop
% name = view.session.session
% rebase("layout.tpl", title=shown_name(drop.name, 80), here="Sessions", heading=shown_name(drop.name, 1000), about=shown_name(drop.oid, 1000), crumbs=(*SESSIONS, (shown_name(name, 80), session_url(name)), (shown_name(drop.name, 80), f"{session_url(name)}?key={quoted(drop.key)}#drops")), controls="drop_actions.tpl", script="page.js" if not view.session.is_over else "", sheet="content.css")
<div data-part="drop">
% include("warnings.tpl", warnings=view.warnings)
<div class="block columns">
<dl class="facts">
<dt>State</dt><dd><span class="state {{state_style(drop.state, is_running=drop.is_running)}}" title="{{drop.state}}">{{state_word(drop.state, is_running=drop.is_running)}}</span></dd>
<dt>Kind</dt><dd>{{"application" if drop.is_app else "data"}}, <bdi>{{shown_name(drop.category, 80)}}</bdi></dd>
<dt>Node</dt><dd><bdi>{{shown_name(drop.node, 120)}}</bdi></dd>
<dt>Attempt</dt><dd>{{drop.attempt}}</dd>
% if not drop.is_app:
<dt>Size</dt><dd>{{format_size(drop.size)}}</dd>
% if drop.path:
<dt>Path</dt><dd class="mono"><bdi class="clip-long">{{single_line(drop.path, 1000)}}</bdi></dd>
% end
% end
<dt>Row</dt><dd>{{format_count(drop.drop)}}</dd>
</dl>
% if drop.reasons:
<div>
<h2>Why</h2>
% for reason in drop.reasons:
<p><bdi>{{single_line(reason, 1000)}}</bdi></p>
% end
</div>
% end
</div>
% if drop.attempts:
<section class="block" aria-labelledby="attempts-title"><h2 id="attempts-title">Attempts</h2>
<div class="table tall" tabindex="0" role="region" aria-label="Table of attempts"><table>
<thead><tr><th scope="col" class="number">Attempt</th><th scope="col">Began</th><th scope="col" class="number">Waited</th><th scope="col" class="number">Ran</th><th scope="col" class="number">Processor</th><th scope="col" class="number at-middle">Memory</th><th scope="col" class="number at-wide">Read</th><th scope="col" class="number at-wide">Written</th><th scope="col" class="at-middle">Worker</th></tr></thead>
<tbody>
% for one in drop.attempts:
<tr data-row="{{one.attempt}}"><td class="number">{{one.attempt}}{{", failed" if one.failed else ""}}</td><td class="short">{{format_time(one.began)}}</td><td class="number">{{format_brief(one.waited)}}</td><td class="number">{{format_brief(one.ran)}}{{" so far" if one.is_running else ""}}</td><td class="number">{{"–" if one.is_running else format_brief(one.processor)}}</td><td class="number at-middle">{{format_size(one.memory) if one.memory else "–"}}</td><td class="number at-wide">{{format_size(one.read)}}</td><td class="number at-wide">{{format_size(one.written)}}</td><td class="at-middle">{{f"worker {one.worker}" if one.worker else "a thread"}} <span class="muted">on <bdi>{{shown_name(drop.node, 80)}}</bdi></span></td></tr>
% end
</tbody></table></div>
</section>
% end
% if drop.failure:
<section class="block" aria-labelledby="failure-title"><h2 id="failure-title">{{"Failure" if drop.failure.drop == drop.oid else "Root cause"}}</h2>
% for cause in causes((drop.failure,)):
% include("failure.tpl", cause=cause, session=name)
% end
% if drop.failure.drop == drop.oid and drop.inputs:
<p>It read {{plural(drop.input_count, "input")}}\\
% for number, other in enumerate(view.first_inputs.rows):
{{"," if number else ":"}} <a href="{{drop_url(name, other.oid)}}"><bdi>{{shown_name(drop_label(other.name, other.oid), 120)}}</bdi></a>\\
% if other.size is not None:
 ({{format_size(other.size)}}{{f", {single_line(other.path, 1000)}" if other.path else ""}})\\
% end
% end
{{f" and {format_count(view.first_inputs.left_out)} more" if view.first_inputs.left_out else ""}}.</p>
% end
</section>
% end
<div class="block columns">
% for title, neighbours, total in (("Inputs", drop.inputs, drop.input_count), ("Outputs", drop.outputs, drop.output_count)):
<section>
<div class="section-head"><h2>{{title}}</h2><span class="muted">{{format_count(total)}}</span></div>
% if neighbours:
<div class="table tall" tabindex="0" role="region" aria-label="Table of {{title.lower()}}"><table>
<thead><tr><th scope="col">Drop</th><th scope="col">State</th><th scope="col" class="at-middle">Port</th></tr></thead>
<tbody>
% for other in neighbours:
<tr data-row="{{other.drop}}"><th scope="row"><a href="{{drop_url(name, other.oid)}}"><bdi class="clip">{{shown_name(drop_label(other.name, other.oid), 120)}}</bdi></a><span class="sub mono clip"><bdi>{{shown_name(other.oid, 120)}}</bdi></span></th><td><span class="state {{state_style(other.state)}}" title="{{other.state}}">{{state_word(other.state)}}</span></td><td class="at-middle short"><bdi>{{shown_name(other.port, 80) if other.port else "–"}}</bdi></td></tr>
% end
</tbody></table></div>
% elif total:
<p class="muted">None on this page.</p>
% else:
<p class="muted">None.</p>
% end
% if total > view.query.limit or view.query.offset:
% include("pager.tpl", label=f"Pages of {title.lower()}", things=title.lower(), offset=view.query.offset, limit=view.query.limit, total=total, address=address)
% end
</section>
% end
</div>
% if view.data:
% include("content.tpl", data=view.data, query=view.query, oid=drop.oid, session=name, address=api_url(name, drop.oid, "data"), own=drop_url(name, drop.oid), picture=picture, plot=plot if defined("plot") else None, title=drop.name)
% end
% if view.log:
<section class="block" aria-labelledby="log-title">
<div class="section-head"><h2 id="log-title">Log</h2>
% if view.log.is_open:
<span class="muted">it is too long to be read here to its end</span>
% elif view.log.is_cut:
<span class="muted">the end of it</span>
% end
<a href="{{session_url(name)}}/log?oid={{quoted(drop.oid)}}">Search and filter</a>
<a href="{{api_url(name, drop.oid, "log")}}" download>Download</a></div>
% if view.log.text:
<pre tabindex="0">{{view.log.text}}</pre>
% else:
<p class="muted">It is empty.</p>
% end
</section>
% end
% if drop.parameters:
<section class="block" aria-labelledby="parameters-title">
<h2 id="parameters-title">Parameters</h2>
<div class="table tall" tabindex="0" role="region" aria-label="Table of parameters"><table data-sortable>
<thead><tr><th scope="col">Name</th><th scope="col">Value</th></tr></thead>
<tbody>
% for key, value in drop.parameters.items():
<tr data-row="{{key}}"><th scope="row" class="parameter"><bdi>{{shown_name(key, 120)}}</bdi></th>\\
% if key == "func_code" or "\n" in value.strip():
<td>
% include("code.tpl", text=value)
</td></tr>
% else:
<td class="mono"><bdi class="clip-long">{{single_line(value, 2000) if value else "–"}}</bdi></td></tr>
% end
% end
</tbody></table></div>
</section>
% end
</div>
