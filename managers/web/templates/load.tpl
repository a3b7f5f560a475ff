<div class="bar-text"><span>{{word}}</span><span>{{text}}</span></div>
<svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" role="img" aria-label="{{word}}: {{text}}"><rect class="load{{" high" if share > 90 else ""}}" width="{{round(min(max(share, 0), 100), 1)}}" height="1"/></svg>
