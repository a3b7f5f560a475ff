<figure class="plot"><figcaption><span>{{plot.title}}</span> <b>{{plot.now}}</b> <small class="muted">of {{plot.most}}</small></figcaption>
<svg class="spark" viewBox="0 0 300 48" preserveAspectRatio="none" role="img" aria-label="{{plot.title}}: {{plot.now}} now, the upper edge is {{plot.most}}"><polygon points="{{plot.area}}"/><polyline points="{{plot.line}}"/></svg></figure>
