% if found.times.rows:
% most = max(found.times.rows[0].cost, 1e-12)
<section class="block" aria-labelledby="times-title">
<div class="section-head"><h2 id="times-title">Times by logical node</h2><span class="muted">those that took most first; above the first session, below the second</span></div>
<div class="table tall" tabindex="0" role="region" aria-label="Table of times by logical node"><table class="ratios">
<thead><tr><th scope="col">Name</th><th scope="col" class="number at-middle">Attempts</th><th scope="col" class="number at-wide">Failed</th><th scope="col" class="number at-middle">Median</th><th scope="col" class="number at-middle">95 %</th><th scope="col" class="number">In all</th><th scope="col" class="pair-column"><span class="unseen">In all, as bars</span></th><th scope="col" class="number">Ratio</th></tr></thead>
<tbody>
% for one in found.times.rows:
% both = (("first", one.first), ("second", one.second))
<tr><th scope="row"><bdi class="clip">{{shown_name(one.name, 120)}}</bdi><span class="sub"><bdi>{{shown_name(one.category, 60)}}</bdi></span></th>\\
% for field, classes, spell in (("attempts", "at-middle", format_count), ("failed", "at-wide", format_count), ("median", "at-middle", format_brief), ("p95", "at-middle", format_brief), ("seconds", "", format_brief)):
<td class="number two {{classes}}">\\
% for style, times in both:
<span class="{{style}}">{{"–" if times is None else spell(getattr(times, field))}}</span>\\
% end
</td>\\
% end
<td class="pair-column"><svg class="pair" viewBox="0 0 100 2" preserveAspectRatio="none" aria-hidden="true">\\
% for at, (style, times) in enumerate(both):
% if times is not None:
<rect class="{{style}}" x="0" y="{{at * 1.15}}" width="{{round(max(100 * times.seconds / most, 0.5), 2)}}" height="0.85"/>\\
% end
% end
</svg></td><td class="number">{{ratio_text(one.ratio)}}</td></tr>
% end
</tbody></table></div>
% if found.times.left_out:
<p class="muted small block-small">{{format_count(found.times.left_out)}} more are not listed.</p>
% end
</section>
% end
