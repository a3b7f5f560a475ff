<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>Report of {{shown_name(detail.session, 80)}}</title>
<link rel="icon" href="data:,">
<style>
{{!css}}
</style>
</head>
<body>
<main class="report">
<header>
<p class="muted">Report of a session of dropflow, written {{format_time(report.written)}}</p>
<h1><bdi>{{shown_name(detail.session, 200)}}</bdi></h1>
<p class="state-line">{{detail.status.lower().capitalize()}}: {{failed_words(detail.counts)}}. <bdi>{{shown_name(detail.graph, 200)}}</bdi>{{", begun " + format_time(detail.started or detail.created) if detail.started or detail.created else ""}}.</p>
% if not detail.is_over:
<div class="note warning"><p>The session was not over when this report was written.</p></div>
% end
% if detail.text:
<div class="note{{" error" if detail.status == "FAILED" else ""}}"><p><bdi>{{single_line(detail.text, 4000)}}</bdi></p></div>
% end
% for node in report.missing:
<div class="note warning"><p>Node <bdi>{{shown_name(node, 80)}}</bdi> did not answer: its attempts are missing.</p></div>
% end
% for note in notes.rows:
<div class="note"><p><bdi>{{single_line(note, 2000)}}</bdi></p></div>
% end
% include("more.tpl", listed=notes, noun="note")
% for note in report.left_out:
<div class="note"><p>{{note}}</p></div>
% end
</header>
<section aria-labelledby="summary"><h2 id="summary">Summary</h2>
<svg class="bar big" viewBox="0 0 100 1" preserveAspectRatio="none" role="img" aria-label="{{format_count(detail.settled)}} of {{format_count(detail.drops)}} drops are settled">
% for style, word, start, width, number in bar(detail.counts):
<rect class="{{style}}" x="{{start}}" width="{{width}}" height="1"/>
% end
</svg>
<ul class="legend">
% for style, word, start, width, number in bar(detail.counts):
<li><span class="state {{style}}">{{word}} <b>{{format_count(number)}}</b></span></li>
% end
</ul>
<dl class="figures block-small">
<div><dt>Drops</dt><dd>{{format_count(detail.drops)}}</dd></div>
<div><dt>Attempts</dt><dd>{{format_count(statistics.attempts)}}{{!f" <small>{format_count(statistics.failed)} failed</small>" if statistics.failed else ""}}</dd></div>
<div><dt>Time</dt><dd>{{format_brief(detail.seconds)}}</dd></div>
<div><dt>Critical path</dt><dd>{{format_brief(statistics.critical_ran)}} <small>and {{format_brief(statistics.critical_waited)}} waiting</small></dd></div>
<div><dt>Nodes</dt><dd>{{format_count(len(detail.nodes))}}</dd></div>
<div><dt>Workers</dt><dd>{{format_count(len(statistics.lanes))}}</dd></div>
</dl></section>
% if causes.rows:
<section aria-labelledby="failures"><h2 id="failures">Failures by root cause</h2>
% for cause in causes.rows:
<article class="note error"><header><h3><bdi>{{shown_name(cause.name, 120)}}</bdi></h3><span class="muted small">{{cause.first.code}} <bdi>{{shown_name(cause.first.kind, 80)}}</bdi>{{f" on {shown_name(cause.first.node, 80)}" if cause.first.node else ""}}</span><span class="count">{{cause.harm}}</span></header>
<p><bdi>{{single_line(cause.text, 4000)}}</bdi></p>
% if cause.first.hint:
<p class="hint"><bdi>{{single_line(cause.first.hint, 2000)}}</bdi></p>
% end
% if cause.first.drop:
<p class="small mono"><bdi>{{shown_name(cause.first.drop, 200)}}</bdi>{{f" and {format_count(len(cause.rest))} alike" if cause.rest else ""}}</p>
% end
% if cause.first.inputs:
<details><summary>Inputs</summary><ul class="plain small">
% for line in cause.first.inputs:
<li><bdi>{{line}}</bdi></li>
% end
</ul></details>
% end
% if cause.first.detail:
<details><summary>Details</summary><pre tabindex="0">{{cause.first.detail[:20000]}}</pre></details>
% end
</article>
% end
% include("more.tpl", listed=causes, noun="cause")
</section>
% end
% if drawing:
<section aria-labelledby="graph"><h2 id="graph">Graph</h2>
% whole = drawing.drawing
<div class="picture graph-picture" tabindex="0" role="region" aria-label="Picture of the logical graph">
<svg viewBox="-10 -10 {{round(whole.width + 20)}} {{round(whole.height + 20)}}" width="{{round((whole.width + 20) * 0.85)}}" height="{{round((whole.height + 20) * 0.85)}}" role="img" aria-label="The logical graph: {{len(whole.nodes)}} nodes. The table below has their names and states.">
% for frame in whole.frames:
<rect class="frame" x="{{round(frame.x)}}" y="{{round(frame.y)}}" width="{{round(frame.width)}}" height="{{round(frame.height)}}" rx="10"/><text class="frame-name" x="{{round(frame.x) + 14}}" y="{{round(frame.y) + 20}}">{{drawing.name(f"{frame.name} × {format_count(frame.size)}" if frame.size > 1 else frame.name, frame.width - 24)}}</text>
% end
% for arrow in whole.arrows:
<path class="arrow{{" stream" if arrow.is_streaming else ""}}" d="{{drawing.path(arrow.source, arrow.target)}}"/>
% end
% for node in whole.nodes:
% parts = drawing.bar(node.key, whole.node_width - 32)
<g class="{{"has-error" if any(part[0] == "error" for part in parts) else ""}}" transform="translate({{round(node.x)}} {{round(node.y)}})"><rect class="body" width="{{round(whole.node_width)}}" height="{{round(whole.node_height)}}" rx="{{4 if node.is_app else round(whole.node_height / 2)}}"/><text class="name" x="16" y="21">{{drawing.name(node.name, whole.node_width - 32)}}</text>\\
% for style, start, width in parts:
<rect class="part {{style}}" x="{{round(16 + start, 1)}}" y="{{round(whole.node_height - 15)}}" width="{{round(width, 1)}}" height="5"/>\\
% end
</g>
% end
</svg></div></section>
% end
<section aria-labelledby="nodes"><h2 id="nodes">Logical nodes</h2>
<div class="table tall" tabindex="0" role="region" aria-label="Table of logical nodes"><table>
<thead><tr><th scope="col">Name</th><th scope="col" class="grow">Progress</th><th scope="col" class="number">Drops</th><th scope="col" class="number">In error</th></tr></thead><tbody>
% for node in nodes.rows:
<tr><th scope="row"><bdi>{{shown_name(node.name, 120)}}</bdi><span class="sub">{{"app" if node.is_app else "data"}} <bdi>{{shown_name(node.category, 60)}}</bdi></span></th><td class="grow"><svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" role="img" aria-label="{{", ".join(f"{part[4]} {part[1]}" for part in bar(node.counts)) or "no drops"}}">\\
% for style, word, start, width, number in bar(node.counts):
<rect class="{{style}}" x="{{start}}" width="{{width}}" height="1"/>\\
% end
</svg></td><td class="number">{{format_count(node.drops)}}</td><td class="number{{"" if node.counts.in_error else " zero"}}">{{format_count(node.counts.in_error)}}</td></tr>
% end
</tbody></table></div></section>
% if timeline:
<section aria-labelledby="timeline"><h2 id="timeline">Timeline</h2>
<div class="picture timeline-picture" tabindex="0" role="region" aria-label="Picture of the timeline">
{{!timeline}}
</div></section>
<section aria-labelledby="times"><h2 id="times">Times by logical node</h2>
<div class="table tall" tabindex="0" role="region" aria-label="Table of times"><table>
<thead><tr><th scope="col">Name</th><th scope="col" class="number">Attempts</th><th scope="col" class="number">Median</th><th scope="col" class="number">95 %</th><th scope="col" class="number">Longest</th><th scope="col" class="number">Ready</th><th scope="col" class="number">Queued</th><th scope="col" class="number">In all</th><th scope="col" class="number">Processor</th><th scope="col" class="number">Memory</th><th scope="col" class="number">Read</th><th scope="col" class="number">Written</th></tr></thead><tbody>
% for one in node_times.rows:
<tr><th scope="row"><bdi>{{shown_name(one.name, 120)}}</bdi></th><td class="number">{{format_count(one.attempts)}}</td><td class="number">{{format_brief(one.median)}}</td><td class="number">{{format_brief(one.p95)}}</td><td class="number">{{format_brief(one.longest)}}</td><td class="number">{{format_brief(one.waited)}}</td><td class="number">{{format_brief(one.queued)}}</td><td class="number">{{format_brief(one.seconds)}}</td><td class="number">{{format_brief(one.processor)}}</td><td class="number">{{format_size(one.memory) if one.memory else "–"}}</td><td class="number">{{format_size(one.read)}}</td><td class="number">{{format_size(one.written)}}</td></tr>
% end
</tbody></table></div></section>
% if statistics.traffic:
% include("traffic.tpl", traffic=statistics.traffic, uncounted=statistics.uncounted)
% end
<section aria-labelledby="critical"><h2 id="critical">Critical path</h2>
<p class="muted small">{{plural(statistics.critical_steps, "attempt")}}; the longest {{format_count(len(statistics.critical))}} are listed.</p>
<div class="table tall" tabindex="0" role="region" aria-label="Table of the critical path"><table>
<thead><tr><th scope="col">Drop</th><th scope="col">Node</th><th scope="col">Began after</th><th scope="col" class="number" title="Until its data, or a message about them, had come to its node">Moving</th><th scope="col" class="number" title="From then until a worker began it: it had to end another attempt, or to start">For a worker</th><th scope="col" class="number">Ran</th></tr></thead><tbody>
% for one in statistics.critical:
<tr><th scope="row"><bdi>{{shown_name(one.name, 120)}}</bdi><span class="sub mono"><bdi>{{shown_name(one.drop, 120)}}</bdi></span></th><td><bdi>{{shown_name(one.node, 80)}}</bdi></td><td>{{dict(beginning="the beginning", data="data", repetition="a failed attempt", worker="a worker").get(one.waited_for, one.waited_for)}}</td><td class="number">{{format_brief(one.moved)}}</td><td class="number">{{format_brief(one.waited - one.moved)}}</td><td class="number">{{format_brief(one.ran)}}</td></tr>
% end
</tbody></table></div></section>
% end
<section aria-labelledby="parameters"><h2 id="parameters">Parameters</h2>
% for name, pairs in report.parameters:
<details><summary><bdi>{{shown_name(name, 120)}}</bdi></summary>
<dl class="facts">
% for key, value in pairs:
<dt><bdi>{{shown_name(key, 120)}}</bdi></dt><dd class="mono value"><bdi>{{value or "–"}}</bdi></dd>
% end
</dl></details>
% end
</section>
<section aria-labelledby="versions"><h2 id="versions">Versions</h2>
<dl class="facts"><dt>dropflow that wrote this</dt><dd>{{own_version}}</dd>
% for word, version in report.versions:
<dt><bdi>{{shown_name(word, 120)}}</bdi></dt><dd><bdi>{{shown_name(version, 120)}}</bdi></dd>
% end
</dl></section>
</main>
</body>
</html>
