% session = view.session
% name = session.session
% rebase("session_frame.tpl", title=shown_name(name, 80), tab="Overview", script="session.js")
<div id="session" data-twin="{{twin}}" data-events="{{events}}" data-version="{{session.version}}" data-over="{{"yes" if session.is_over else "no"}}">
<div data-part="warnings">
% include("warnings.tpl", warnings=view.warnings)
% for note in session.notes:
<div class="note block"><p><bdi>{{single_line(note, 2000)}}</bdi></p></div>
% end
% if session.text and not any(failure.text in session.text for failure in session.failures):
<div class="note {{"error" if session.status == "FAILED" else ""}} block"><p class="clip-long"><bdi>{{single_line(session.text, 4000)}}</bdi></p></div>
% end
</div>

<section class="block" aria-labelledby="progress-title">
<div class="section-head"><h2 id="progress-title">Progress</h2></div>
<div id="bar">
% numbers = grouped(session.counts)
% include("bar.tpl", numbers=numbers, big=True, label=f"{format_count(session.settled)} of {format_count(session.drops)} drops are settled")
</div>
<div class="scrub block-small" id="scrub" data-moment="{{session_api(name)}}/moment" hidden><label>Moment<input type="range" min="0" max="1000" value="1000" aria-label="Moment of the session"></label><output></output><button type="button" disabled>Now</button></div>
<ul class="legend" id="legend">
% for group in groups:
<li class="{{"" if numbers[group.style] else "zero"}}" data-group="{{group.style}}" data-counted="{{" ".join(group.counted)}}"><a class="state {{group.style}}" href="{{address(state=group.query)}}">{{group.word}} <b>{{format_count(numbers[group.style])}}</b></a></li>
% end
</ul>
<dl class="figures block-small">
<div><dt>Settled</dt><dd><span data-figure="settled">{{format_count(session.settled)}}</span> <small>of <span data-figure="drops">{{format_count(session.drops)}}</span></small></dd></div>
<div><dt>Running now</dt><dd data-figure="running">{{format_count(session.running)}}</dd></div>
<div><dt>Waiting for a worker</dt><dd data-figure="waiting">{{format_count(session.queued + session.ready)}}</dd></div>
<div><dt>{{"Rate, on average" if session.is_over else "Rate"}}</dt><dd data-figure="rate">{{format_rate(session.rate) if session.rate else "–"}}</dd></div>
<div><dt>Time</dt><dd data-figure="seconds">{{format_duration(session.seconds)}}</dd></div>
<div><dt>Time left</dt><dd data-figure="remaining">{{session.time_left if session.is_quiet else format_remaining(session.remaining)}}</dd></div>
% if session.reused:
<div><dt>Applications</dt><dd>{{format_count(session.computed)}} run <small>{{format_count(session.reused)}} reused from earlier runs</small></dd></div>
% end
% if session.recomputed:
<div><dt>Computed again</dt><dd>{{format_count(session.recomputed)}} <small>contents were lost</small></dd></div>
% end
<div><dt>Nodes</dt><dd>{{format_count(len(session.nodes))}}</dd></div>
</dl>
</section>

<div data-part="failures">
% first_causes, more_causes = view.causes
% if first_causes:
<section class="block" aria-labelledby="failures-title">
<div class="section-head"><h2 id="failures-title">Failures by root cause</h2><a href="{{causes_url(name)}}">All causes</a><span class="muted" data-figure="failures">{{"by then: " if view.query.time else ""}}{{failed_words(session.counts)}}{{f"; causes of {format_count(session.unlisted)} are not listed here" if session.unlisted > 0 else ""}}</span></div>
% for cause in first_causes:
% include("failure.tpl", cause=cause, session=name)
% end
% if more_causes:
<details class="block-small" data-row="more"><summary>{{format_count(len(more_causes))}} more</summary>
% for cause in more_causes:
% include("failure.tpl", cause=cause, session=name)
% end
</details>
% end
</section>
% end
</div>

<div data-part="results">
% if view.results:
<section class="block">
<div class="section-head"><h2>Results</h2><a href="{{session_url(name)}}/results">All results</a><span class="muted">{{"by then: " if view.query.time else ""}}{{plural(view.result_count, "file")}}, {{format_size(view.result_size)}}{{f"; the first {len(view.results)} are here" if len(view.results) < view.result_count else ""}}</span></div>
% include("results_table.tpl", results=view.results, session=name, sort="", sort_address=None)
</section>
% end
</div>

% if not is_brief:
<section class="block">
<div class="section-head"><h2>Logical nodes</h2><span class="muted">{{format_count(len(session.logical))}}</span></div>
<div data-part="logical">
% if session.logical:
<div class="table tall" tabindex="0" role="region" aria-label="Logical nodes"><table id="logical" data-sortable>
<thead><tr><th scope="col">Name</th><th scope="col" class="grow">Progress</th>
% for group in groups:
<th scope="col" class="number at-middle">{{group.word.capitalize()}}</th>
% end
<th scope="col" class="number">Drops</th></tr></thead>
<tbody>
% for node in session.logical:
% numbers = grouped(node.counts)
% settled = node.counts.settled
<tr data-key="{{node.key}}" data-drops="{{node.drops}}">
<th scope="row" class="name"><a href="{{address(key=node.key)}}"><bdi class="clip">{{shown_name(node.name, 120)}}</bdi></a><span class="sub">{{"app" if node.is_app else "data"}} <bdi>{{shown_name(node.category, 60)}}</bdi>{{", added by the translator" if node.artificial else ""}}</span></th>
<td class="grow">
% include("bar.tpl", numbers=numbers, big=False, label=f"{format_count(settled)} of {format_count(node.drops)} drops are settled")
</td>
% for group in groups:
% number = numbers[group.style]
<td class="number at-middle{{"" if number else " zero"}}" data-group="{{group.style}}"><a href="{{address(key=node.key, state=group.query)}}">{{format_count(number)}}</a></td>
% end
<td class="number"><span class="at-narrow" data-settled>{{format_count(settled)}} / </span>{{format_count(node.drops)}}</td>
</tr>
% end
</tbody></table></div>
% else:
<div class="empty"><p>No drops yet.</p></div>
% end
</div>
</section>

% end

<section class="block" id="drops">
<div class="section-head"><h2>Drops</h2><span class="muted" data-part="drops-moment">{{f"as they were at {format_time(view.query.time)}" if view.query.time else ""}}</span></div>
<form class="filters" method="get" action="{{session_url(name)}}#drops" data-parts="drops">
% if view.query.sort:
<input type="hidden" name="sort" value="{{view.query.sort}}">
% end
% if view.query.time:
<input type="hidden" name="time" value="{{view.query.time}}">
% end
<label>Text in id or name<input type="search" name="text" value="{{view.query.text}}" maxlength="200"></label>
<label>Logical node<select name="key"><option value="">any</option>
% for node in () if is_brief else session.logical:
<option value="{{node.key}}"{{" selected" if node.key == view.query.key else ""}}>{{shown_name(node.name, 60)}}</option>
% end
</select></label>
<label>State<select name="state"><option value="">any</option>
% for group in groups:
% if group.states:
<option value="{{group.query}}"{{" selected" if group.query == view.query.state.upper() else ""}}>{{state_word(group.query) if group.style == "running" else group.word}}</option>
% end
% end
% if view.query.state and view.query.state.upper() not in [group.query for group in groups]:
<option value="{{view.query.state}}" selected>{{view.query.state.lower()}}</option>
% end
</select></label>
<label>Node<select name="node"><option value="">any</option>
% for node in session.nodes:
<option value="{{node}}"{{" selected" if node == view.query.node else ""}}>{{shown_name(node, 60)}}</option>
% end
</select></label>
<button type="submit">Show</button>
</form>
<div data-part="drops">
% if view.drops.drops:
<div class="table tall" tabindex="0" role="region" aria-label="Drops"><table>
<thead><tr>
% include("sort_header.tpl", sort=view.query.sort, sort_address=lambda sort: address(sort=sort, same=True), columns=(("Row", "row", "number at-wide"), ("Drop", "id", ""), ("Logical node", "name", "at-middle"), ("State", "state", ""), ("Node", "node", "at-middle"), ("Attempt", "attempt", "number at-wide"), ("Size", "size", "number at-middle")))
</tr></thead>
<tbody>
% for drop in view.drops.drops:
<tr data-row="{{drop.drop}}"><td class="number muted at-wide">{{drop.drop}}</td><th scope="row"><a class="mono" href="{{drop_url(name, drop.oid)}}"><bdi class="clip">{{shown_name(drop.oid, 160)}}</bdi></a><span class="sub clip at-narrow"><bdi>{{shown_name(drop.name, 80)}}</bdi></span></th><td class="at-middle"><bdi class="clip">{{shown_name(drop.name, 120)}}</bdi></td><td><span class="state {{state_style(drop.state, is_running=drop.is_running)}}" title="{{drop.state}}">{{state_word(drop.state, is_running=drop.is_running)}}</span></td><td class="at-middle"><bdi class="clip">{{shown_name(drop.node, 80)}}</bdi></td><td class="number at-wide">{{drop.attempt}}</td><td class="number at-middle">{{format_size(drop.size)}}</td></tr>
% end
</tbody></table></div>
% else:
<div class="empty"><p>No drop matches.</p><p><a href="{{session_url(name)}}#drops">Show all</a></p></div>
% end
% include("pager.tpl", label="Pages of drops", things="drops", offset=view.query.offset, limit=view.query.limit, total=view.drops.total, address=lambda offset: address(offset=offset, same=True))
</div>
</section>

<section class="block" aria-labelledby="downloads-title">
<div class="section-head"><h2 id="downloads-title">Downloads</h2></div>
<p class="actions"><a class="button" href="{{session_api(name)}}/graph" download>Physical graph</a><a class="button" href="{{session_api(name)}}/graph?format=json" download>as JSON</a><a class="button" href="{{session_api(name)}}/journal" download>Journal</a><a class="button" href="{{session_url(name)}}/report.html" download>Report</a></p>
</section>
</div>
