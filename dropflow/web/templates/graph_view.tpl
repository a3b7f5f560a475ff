<div id="graph" class="graph" data-base="{{base}}" data-events="{{events}}" data-api="{{api}}" data-page="{{page}}" data-by="{{by}}">
<div class="graph-bar">
<label>Boxes <select id="graph-by">
% for value, word in groupings:
<option value="{{value}}"{{" selected" if value == by else ""}}>{{word}}</option>
% end
</select></label>
% if has_parts:
<label>Colour <select id="graph-colour">
% if events:
<option value="state" selected>state</option>
% end
<option value="part"{{"" if events else " selected"}}>part</option>
% if not events:
<option value="state">none</option>
% end
</select></label>
% end
<div class="actions">
<button type="button" class="square" data-do="out" aria-label="Zoom out" title="Zoom out (-)">−</button>
<button type="button" class="square" data-do="in" aria-label="Zoom in" title="Zoom in (+)">+</button>
<button type="button" data-do="fit" title="Show the whole graph (f)">Fit</button>
<button type="button" data-do="critical" title="The chain of attempts and waits that ended last; before anything has run, the longest by the estimates of the graph">Critical path</button>
</div>
<form id="graph-find" role="search"><input id="graph-text" type="search" aria-label="Find drops by id or name" placeholder="Find drops  /" maxlength="200" autocomplete="off"></form>
% if events:
<span class="live" role="status" data-state="off" hidden></span>
% end
</div>
<details class="graph-logical-part"><summary>Logical graph</summary><div id="graph-logical" class="graph-logical"></div></details>
<div class="graph-strip">
% if events:
<div class="scrub" id="scrub" data-moment="{{api}}/moment" hidden><label>Moment<input type="range" min="0" max="1000" value="1000" aria-label="Moment of the session"></label><output></output><button type="button" disabled>Now</button></div>
% end
<ul class="legend" id="graph-legend" aria-label="Colours"></ul>
</div>
<div class="graph-body">
<div class="graph-stage">
<canvas tabindex="0" role="application" aria-label="The graph. Arrows move it, plus and minus zoom, F fits it, Enter chooses what is in the middle, Escape leaves, slash searches. The list of its boxes is beside it."></canvas>
<div class="graph-note" role="status" hidden></div>
</div>
<aside class="graph-side" aria-label="Details and list">
<section id="graph-panel" class="graph-panel" aria-label="Chosen" hidden></section>
<section class="graph-list" aria-labelledby="graph-boxes-title"><h2 id="graph-boxes-title">Boxes{{", those with errors first" if events else ""}}</h2><ul id="graph-boxes"></ul></section>
</aside>
</div>
</div>
<noscript><p class="note">This picture needs JavaScript. The same drops are in a table on the page before.</p></noscript>
