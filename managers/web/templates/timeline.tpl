% session = view.session
% name = session.session
% times = view.times
% rebase("session_frame.tpl", title=f"Timeline of {shown_name(name, 80)}", tab="Timeline", script="timeline.js")
% include("warnings.tpl", warnings=view.warnings)
<p class="block-small muted" data-part="heading" id="heading" data-over="{{"yes" if session.is_over else "no"}}">{{plural(times.attempts, "attempt")}}{{f", {format_count(times.failed)} failed" if times.failed else ""}}, {{format_brief(times.ended - times.began)}}</p>
<section class="timeline" id="timeline" aria-label="Timeline" data-api="{{api}}" data-session="{{session_url(name)}}" data-name="{{name}}" data-over="{{"yes" if session.is_over else "no"}}">
<div class="timeline-bar">
<label class="inline">Colour by<select id="colours"><option value="template">logical node</option><option value="state">state</option><option value="plan">plan</option></select></label>
<label class="inline"><input type="checkbox" id="show-path" checked>Critical path</label>
<label class="inline" id="plan" hidden><input type="checkbox" id="show-plan" checked>Plan</label>
<span class="timeline-buttons"><button type="button" data-do="closer" aria-label="Zoom in">+</button><button type="button" data-do="farther" aria-label="Zoom out">−</button><button type="button" data-do="whole">All</button></span>
<span class="timeline-buttons timeline-exports"><a class="button" href="{{timeline_url(name)}}/trace.json" download>Trace</a><a class="button" href="{{timeline_url(name)}}/picture.svg" download>SVG</a><button type="button" data-do="picture">PNG</button></span>
</div>
<div class="timeline-box"><div class="timeline-spacer"><canvas tabindex="0" role="application" aria-label="Attempts by worker over time. The tables below have the same facts. Keys: W and S zoom, A and D move, arrows choose attempts, F shows the chosen one, 0 shows all, C switches the critical path, P the plan, Enter opens the drop."></canvas></div></div>
<ul class="plain small timeline-idle" aria-label="Nodes where nothing runs"></ul>
<ul class="legend"></ul>
<div class="timeline-panel" role="status"></div>
<p class="muted small">Keys on the timeline: <kbd>w</kbd> <kbd>s</kbd> zoom, <kbd>a</kbd> <kbd>d</kbd> move, arrows choose an attempt, <kbd>f</kbd> shows it, <kbd>0</kbd> shows all, <kbd>c</kbd> the critical path, <kbd>p</kbd> the plan, <kbd>Enter</kbd> opens the drop. The trace opens in Perfetto.</p>
</section>
<div data-part="times">
% if time:
<p class="muted small">Times are of the attempts that had ended by {{format_time(time)}}. What was moved between nodes is not shown for an earlier moment: it is counted without times. <a href="{{timeline_url(name)}}">Now</a></p>
% end
% if times.templates:
<section class="block">
<div class="section-head"><h2>Times by logical node</h2><span class="muted">{{format_count(times.attempts)}} {{"attempt has" if times.attempts == 1 else "attempts have"}} ended</span>
</div>
<div class="table tall" tabindex="0" role="region" aria-label="Times by logical node"><table data-sortable>
<thead><tr><th scope="col">Name</th><th scope="col" class="number at-middle">Attempts</th><th scope="col" class="number at-wide">Failed</th><th scope="col" class="number">Median</th><th scope="col" class="number">95 %</th><th scope="col" class="number">Longest</th><th scope="col" class="number at-middle" title="Median until given to the workers">Ready</th><th scope="col" class="number at-middle" title="Median from then until it began">Queued</th><th scope="col" class="number at-wide">Planned</th><th scope="col" class="number at-middle">Running in all</th><th scope="col" class="number at-wide">Processor</th><th scope="col" class="number at-wide">Memory</th></tr></thead>
<tbody>
% for one in times.templates:
<tr data-row="{{one.key}}"><th scope="row"><a href="{{session_url(name)}}?key={{quoted(one.key)}}#drops"><bdi class="clip">{{shown_name(one.name, 120)}}</bdi></a></th><td class="number at-middle">{{format_count(one.attempts)}}</td><td class="number at-wide{{"" if one.failed else " zero"}}">{{format_count(one.failed)}}</td><td class="number">{{format_brief(one.median)}}</td><td class="number">{{format_brief(one.p95)}}</td><td class="number">{{format_brief(one.longest)}}</td><td class="number at-middle">{{format_brief(one.waited)}}</td><td class="number at-middle">{{format_brief(one.queued)}}</td><td class="number at-wide muted">{{format_brief(one.planned) if one.planned else "–"}}</td><td class="number at-middle">{{format_brief(one.seconds)}}</td><td class="number at-wide">{{format_brief(one.processor)}}</td><td class="number at-wide">{{format_size(one.memory) if one.memory else "–"}}</td></tr>
% end
</tbody></table></div>
</section>
% end
% if times.critical:
<section class="block">
<div class="section-head"><h2>Critical path</h2><span class="muted">{{format_count(times.critical_steps)}} {{"attempt" if times.critical_steps == 1 else "attempts"}} ran {{format_brief(times.critical_ran)}} and waited {{format_brief(times.critical_waited)}}, {{format_brief(times.critical_waited - times.critical_moved)}} of it for workers{{f"; the {len(times.critical)} longest steps" if len(times.critical) < times.critical_steps else ""}}</span></div>
<div class="table tall" tabindex="0" role="region" aria-label="Critical path"><table data-sortable>
<thead><tr><th scope="col">Drop</th><th scope="col" class="at-middle">Node</th><th scope="col">Began after</th><th scope="col" class="number" title="Until its data, or a message about them, had come to its node">Moving</th><th scope="col" class="number" title="From then until a worker began it: it had to end another attempt, or to start">For a worker</th><th scope="col" class="number">Ran</th></tr></thead>
<tbody>
% for one in times.critical:
<tr data-row="{{one.row}}/{{one.attempt}}"><th scope="row"><a data-attempt="{{one.row}}/{{one.attempt}}" href="{{drop_url(name, one.drop)}}"><bdi class="clip">{{shown_name(one.name, 120)}}</bdi></a><span class="sub mono clip at-middle"><bdi>{{shown_name(one.drop, 120)}}</bdi></span></th><td class="at-middle"><bdi>{{shown_name(one.node, 80)}}</bdi></td><td>{{dict(beginning="the beginning", data="data", repetition="a failed attempt", worker="a worker").get(one.waited_for, one.waited_for)}}</td><td class="number">{{format_brief(one.moved)}}</td><td class="number">{{format_brief(one.waited - one.moved)}}</td><td class="number">{{format_brief(one.ran)}}</td></tr>
% end
</tbody></table></div>
</section>
% end
% if times.lanes:
<div class="block columns">
<section>
<h2>Slowest attempts</h2>
<div class="table" tabindex="0" role="region" aria-label="Slowest attempts"><table data-sortable>
<thead><tr><th scope="col">Drop</th><th scope="col" class="number">Ran</th><th scope="col" class="number">Waited</th></tr></thead>
<tbody>
% for one in times.slowest:
<tr data-row="{{one.row}}/{{one.attempt}}"><th scope="row"><a data-attempt="{{one.row}}/{{one.attempt}}" href="{{drop_url(name, one.drop)}}"><bdi class="clip">{{shown_name(one.name, 120)}}</bdi></a><span class="sub mono clip at-middle"><bdi>{{shown_name(one.drop, 120)}}</bdi></span></th><td class="number">{{format_brief(one.ran)}}</td><td class="number">{{format_brief(one.waited)}}</td></tr>
% end
</tbody></table></div>
</section>
<section>
<h2>Workers</h2>
<div class="table tall" tabindex="0" role="region" aria-label="Workers"><table data-sortable>
<thead><tr><th scope="col">Worker</th><th scope="col" class="number at-middle">Attempts</th><th scope="col" class="number">Busy</th><th scope="col" class="number">For data</th><th scope="col" class="number at-middle">For a message</th><th scope="col" class="number">For a worker</th>
% if any(one.late is not None for one in times.lanes):
<th scope="col" class="number at-wide" title="How much later the last attempt ended than in the plan">Late</th>
% end
</tr></thead>
<tbody>
% for one in times.lanes:
<tr data-row="{{one.node}}/{{one.lane}}"><th scope="row"><bdi>{{one.lane}}</bdi><span class="sub"><bdi>{{shown_name(one.node, 80)}}</bdi></span></th><td class="number at-middle">{{format_count(one.attempts)}}</td><td class="number">{{format_brief(one.busy)}}</td><td class="number">{{format_brief(one.data)}}</td><td class="number at-middle">{{format_brief(one.message)}}</td><td class="number">{{format_brief(one.worker)}}</td>
% if any(each.late is not None for each in times.lanes):
<td class="number at-wide">{{"–" if one.late is None else ("-" if one.late < 0 else "") + format_brief(abs(one.late))}}</td>
% end
</tr>
% end
</tbody></table></div>
</section>
</div>
% end
% if times.traffic:
% include("traffic.tpl", traffic=times.traffic, uncounted=times.uncounted)
% end
</div>
