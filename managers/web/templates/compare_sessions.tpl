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
<p class="muted small digest">graph <code title="{{one.digest}}">{{one.digest[:16]}}</code></p>
</section>
% end
</div>
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
