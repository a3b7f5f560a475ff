% session = view.session
% name = session.session
% comparison = view.comparison
% rebase("session_frame.tpl", title=f"Comparison of {shown_name(name, 80)}", tab="", sheet="compare.css")
<section class="block"><div class="section-head"><h2>{{"Comparison of two sessions" if comparison else "Compare with another session"}}</h2>
% if comparison:
<span class="muted">{{comparison.verdict}}</span><a href="{{compare_url(comparison.second.session, comparison.first.session)}}">Exchange</a><a href="{{compared()}}">Another session…</a>
% else:
<span class="muted">What differs in graph, parameters, programs, times and failures.</span>
% end
</div></section>
% if not comparison:
<section class="block" aria-label="Sessions to compare with">
<form class="filters few" method="get" action="{{compared()}}">
<label>Name or graph<input type="search" name="text" value="{{view.query.text}}" maxlength="200"></label>
<button type="submit">Show</button>
</form>
% if view.candidates:
<div class="table" tabindex="0" role="region" aria-label="Sessions"><table>
<thead><tr><th scope="col">Session</th><th scope="col">Status</th><th scope="col" class="number at-middle">Drops</th><th scope="col" class="number at-middle">Time</th><th scope="col" class="at-wide">Begun</th></tr></thead>
<tbody>
% for one in view.candidates:
<tr data-row="{{one.session}}"><th scope="row" class="name"><a href="{{compared(one.session)}}"><bdi>{{shown_name(one.session, 120)}}</bdi></a><span class="sub clip"><bdi>{{shown_name(one.graph, 120)}}</bdi>{{", a graph of the same name" if one.graph == view.session.graph else ""}}</span></th><td><span class="state {{session_style(one.status)}}">{{one.status.lower()}}</span></td><td class="number at-middle">{{format_count(one.whole or one.drops)}}</td><td class="number at-middle">{{format_duration(one.seconds)}}</td><td class="nowrap at-wide muted">{{format_time(one.created)}}</td></tr>
% end
</tbody></table></div>
% if view.total > len(view.candidates):
<p class="muted small block-small">The first {{format_count(len(view.candidates))}} of {{format_count(view.total)}}; a text in the name finds others.</p>
% end
% elif view.query.text:
<div class="empty"><p>No other session matches.</p><p><a href="{{compared()}}">Show all</a></p></div>
% else:
<div class="empty"><p>There is no other session yet.</p><p><a href="{{session_url(name)}}/clone">Clone this session</a></p></div>
% end
</section>
% else:
% include("warnings.tpl", warnings=comparison.warnings)
<div class="block columns">
% for word, style, one in (("First", "first", comparison.first), ("Second", "second", comparison.second)):
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
% for name, title, state in (("graph", "Components, links and indices", comparison.levels.graph), ("parameters", "These, with parameters", comparison.levels.parameters), ("software", "Versions", comparison.levels.software), ("contents", "Results", comparison.levels.contents)):
<tr><th scope="row"><span class="level {{state}}">{{state}}</span><span class="sub">{{title}}</span></th>\\
% for each in (comparison.first.signature, comparison.second.signature):
<td class="mono"><bdi>{{single_line(each.words(name), 400)}}</bdi></td>\\
% end
</tr>
% end
</tbody></table></div>
<p class="muted small">In the modes of DALiuGE:
% for state, modes in comparison.modes_by_state.items():
<span class="level {{state}}">{{state}}</span> {{modes}}
% end
</p>
</section>
% for title, listed in comparison.parts:
% has_ratio = any(one.ratio is not None for one in listed.rows)
<section class="block">
<div class="section-head"><h2>{{title}}</h2></div>
<div class="table tall" tabindex="0" role="region" aria-label="{{title}}"><table class="differences" data-sortable>
<thead><tr><th scope="col">What</th><th scope="col"><span class="unseen">Of it</span></th><th scope="col"><span class="swatch first"></span>First</th><th scope="col"><span class="swatch second"></span>Second</th>
% if has_ratio:
<th scope="col" class="number">Ratio</th>
% end
</tr></thead>
<tbody>
% for one in listed.rows:
<tr><th scope="row"><bdi class="clip">{{shown_name(one.subject, 300)}}</bdi></th><td><bdi class="clip-long">{{single_line(one.what, 1000)}}</bdi></td><td><bdi class="clip-long">{{spelled(one.left, one.unit)}}</bdi></td><td><bdi class="clip-long">{{spelled(one.right, one.unit)}}</bdi></td>
% if has_ratio:
<td class="number">{{ratio_text(one.ratio)}}</td>
% end
</tr>
% end
</tbody></table></div>
% include("more.tpl", listed=listed, noun="difference")
</section>
% end
% end
