% session = view.session
% name = session.session
% times = view.times
% rebase("page.tpl", title=f"Timeline of {shown_name(name, 80)}", here="Sessions", script="timeline.js")
<div class="page-head">
<div>
<p class="crumbs"><a href="/sessions">Sessions</a><span>/</span><a href="{{session_url(name)}}"><bdi>{{shown_name(name, 80)}}</bdi></a></p>
<h1>Timeline</h1>
<p data-part="heading"><span id="status" data-over="{{"yes" if session.is_over else "no"}}">{{format_count(times.attempts)}} {{"attempt" if times.attempts == 1 else "attempts"}}{{f", {format_count(times.failed)} failed" if times.failed else ""}}, {{format_brief(times.ended - times.began)}}</span></p>
</div>
<span class="live" id="live" role="status" data-state="off" hidden></span>
</div>
% include("warnings.tpl", warnings=view.warnings)
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
% include("times_tables.tpl", times=times, session=name, is_whole=True)
</div>
