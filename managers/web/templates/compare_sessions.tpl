<div class="block columns">
% for word, style, one in (("First", "first", found.first), ("Second", "second", found.second)):
% numbers = grouped(one.counts)
<section class="compared" aria-label="{{word}} session">
<p class="muted small"><span class="swatch {{style}}"></span>{{word}}</p>
<h2><a href="{{session_url(one.session)}}"><bdi>{{shown_name(one.session, 120)}}</bdi></a></h2>
<p class="muted small"><span class="state {{session_style(one.status)}}">{{one.status.lower()}}</span>, begun {{format_time(one.started)}}</p>
% include("bar.tpl", numbers=numbers, big=True, label=f"{format_count(one.counts.settled)} of {format_count(one.drops)} drops are settled")
<ul class="legend">
% for group in groups:
% if numbers[group.style]:
<li><span class="state {{group.style}}">{{group.word}} <b>{{format_count(numbers[group.style])}}</b></span></li>
% end
% end
</ul>
</section>
% end
</div>
<section class="block" aria-labelledby="signature-title">
<div class="section-head"><h2 id="signature-title">What was computed</h2></div>
<div class="table" tabindex="0" role="region" aria-label="Table of signatures"><table class="values">
<thead><tr><th scope="col">Level</th><th scope="col"><span class="swatch first"></span>First</th><th scope="col"><span class="swatch second"></span>Second</th></tr></thead>
<tbody>
% one, two, levels = found.first.signature, found.second.signature, found.levels
% for name, title, state in (("graph", "Components, links and indices", levels.graph), ("parameters", "These, with parameters", levels.parameters), ("software", "Versions", levels.software), ("contents", "Results", levels.contents)):
<tr><th scope="row"><span class="level {{state}}">{{state}}</span><span class="sub">{{title}}</span></th>\\
% for each in (one, two):
% if name == "software":
<td>{{", ".join(f"{program} {version}" for program, version in each.software.items()) or "not recorded"}}</td>\\
% elif name == "contents" and not each.contents:
<td class="muted small"><bdi>{{single_line(each.contents_note, 400)}}</bdi></td>\\
% else:
<td class="mono">{{getattr(each, name)}}</td>\\
% end
% end
</tr>
% end
</tbody></table></div>
% if found.contents.rows:
<h3 class="block-small">Results that differ</h3>
<div class="table tall" tabindex="0" role="region" aria-label="Table of results that differ"><table class="values">
<thead><tr><th scope="col">Result</th><th scope="col"><span class="swatch first"></span>First</th><th scope="col"><span class="swatch second"></span>Second</th></tr></thead>
<tbody>
% for row in found.contents.rows:
<tr><th scope="row"><bdi>{{shown_name(row.name, 200)}}</bdi></th><td class="{{"" if row.first else "muted"}}">{{row.first or "–"}}</td><td class="{{"" if row.second else "muted"}}">{{row.second or "–"}}</td></tr>
% end
</tbody></table></div>
% if found.contents.left_out:
<p class="muted small block-small">{{format_count(found.contents.left_out)}} more are not listed.</p>
% end
% end
</section>
<section class="block" aria-labelledby="totals-title">
<div class="section-head"><h2 id="totals-title">Totals</h2><span class="muted">ratio: second divided by first</span></div>
<div class="table" tabindex="0" role="region" aria-label="Table of totals"><table class="ratios">
<thead><tr><th scope="col">Total</th><th scope="col" class="number"><span class="swatch first"></span>First</th><th scope="col" class="number"><span class="swatch second"></span>Second</th><th scope="col" class="number">Ratio</th></tr></thead>
<tbody>
% spell = {"seconds": format_brief, "bytes": format_size, "count": lambda number: format_count(int(number))}
% for one in found.totals:
<tr><th scope="row">{{one.name.capitalize()}}</th><td class="number">{{spell[one.unit](one.first)}}</td><td class="number">{{spell[one.unit](one.second)}}</td><td class="number">{{ratio_text(one.ratio)}}</td></tr>
% end
</tbody></table></div>
</section>
