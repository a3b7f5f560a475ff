<figure class="line-plot">
<span class="top">{{plot.high}}</span><span class="bottom">{{plot.low}}</span>
<svg viewBox="0 0 700 200" preserveAspectRatio="none" role="img" aria-label="Values of {{shown_name(title, 120)}} by index, from {{plot.low}} to {{plot.high}}">
% for level in (50, 100, 150):
<line x1="0" x2="700" y1="{{level}}" y2="{{level}}"/>
% end
% for points in plot.areas:
<polygon points="{{points}}"/>
% end
% for points in plot.lines:
<polyline points="{{points}}"/>
% end
</svg>
<figcaption><span>0</span><span>{{plot.last}}</span></figcaption>
</figure>
