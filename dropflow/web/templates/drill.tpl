<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>Drill of {{shown_name(reply.graph, 80)}}</title>
<link rel="icon" href="data:,">
<style>
{{!css}}
</style>
</head>
<body>
<main class="report">
<header>
<p class="muted">Simulated by dropflow {{own_version}}</p>
<h1>Drill of <bdi>{{shown_name(reply.graph, 200)}}</bdi></h1>
<p class="state-line">{{plural(reply.seeds, "trial")}} on {{plural(reply.nodes, "node")}} with {{plural(reply.cores, "core")}}: <bdi>{{single_line(", ".join(reply.faults), 2000)}}</bdi>.</p>
% if reply.ended < reply.seeds:
<div class="note warning"><p>{{reply.seeds - reply.ended}} of {{reply.seeds}} sessions did not finish.</p></div>
% end
</header>
<section aria-labelledby="ends"><h2 id="ends">When it ends</h2>
% bars = reply.bars()
% if bars:
% low, high, most = bars[0][0], bars[-1][1], max(count for _, _, count in bars)
% place = lambda seconds: 20 + 760 * (seconds - low) / ((high - low) or 1)
<div class="picture"><svg viewBox="0 0 800 240" role="img" aria-label="How many trials end when; planned {{format_brief(reply.planned_s)}}, median {{format_brief(reply.end_s.median)}}">
% for begin, end, count in bars:
<rect class="part completed" x="{{round(place(begin), 1)}}" y="{{round(200 - 170 * count / most, 1)}}" width="{{round(place(end) - place(begin), 1)}}" height="{{round(170 * count / most, 1)}}"><title>{{format_brief(begin)}} to {{format_brief(end)}}: {{plural(count, "trial")}}</title></rect>
% end
<line class="frame" x1="{{round(place(reply.planned_s), 1)}}" y1="20" x2="{{round(place(reply.planned_s), 1)}}" y2="200"/>
<text class="name" x="{{round(place(reply.planned_s) + 4, 1)}}" y="20">planned {{format_brief(reply.planned_s)}}</text>
<text class="name" x="20" y="220">{{format_brief(low)}}</text>
<text class="name" x="780" y="220" text-anchor="end">{{format_brief(high)}}</text>
</svg></div>
% end
<div class="table"><table><thead><tr><th></th><th>Least</th><th>Median</th><th>95 %</th><th>Most</th></tr></thead><tbody>
% for word, values in (("End", reply.end_s), ("Repeated core time", reply.repeated_s)):
<tr><th scope="row">{{word}}</th>
% for text in values.row():
<td>{{text}}</td>
% end
</tr>
% end
</tbody></table></div>
<p>Planned: {{format_brief(reply.planned_s)}}. Simulated without faults: {{format_brief(reply.undisturbed_s)}}. Repeated in the mean: {{round(reply.repeated_percent, 1)}} % of {{format_brief(reply.work_s)}} of core time.</p>
% for text in reply.walltime_lines():
<p>{{text[0].upper() + text[1:]}}.</p>
% end
</section>
% if reply.changes:
<section aria-labelledby="changes"><h2 id="changes">What would change</h2>
<p class="muted">The first {{plural(reply.changes[0].seeds, "trial")}} again, with one change.</p>
<div class="table"><table><thead><tr><th></th><th>Median</th><th>Now</th><th>95 %</th><th>Now</th><th>Repeated</th><th>Now</th></tr></thead><tbody>
% for row in reply.change_rows():
<tr><th scope="row">{{row[0]}}</th>
% for text in row[1:]:
<td>{{text}}</td>
% end
</tr>
% end
</tbody></table></div></section>
% end
% if reply.single_copies is None:
<p class="muted">Contents with one copy are not worked out with --protect, and for very many drops.</p>
% elif reply.single_copies:
<section aria-labelledby="single"><h2 id="single">Contents with one copy</h2>
<p class="muted">Core time that it takes to make them again, if they are lost when they are needed last.</p>
<div class="table"><table><thead><tr><th>Drop</th><th>Node</th><th>To make again</th></tr></thead><tbody>
% for one in reply.single_copies:
<tr><th scope="row"><bdi>{{shown_name(one.drop, 120)}}</bdi></th><td><bdi>{{shown_name(one.node, 80)}}</bdi></td><td>{{format_brief(one.recompute_s)}}</td></tr>
% end
</tbody></table></div></section>
% end
</main>
</body>
</html>
