% name = source.name
% rebase("layout.tpl", title=f"Log of {shown_name(name, 80)}", here=source.here, heading=source.heading, about=source.about, crumbs=source.crumbs, tabs=source.tabs, tab="Log", controls=source.controls, script="log.js", sheet="log.css")
<form class="filters log-filters" id="filters" method="get" action="{{source.page}}/log">
<label>Text<input type="search" name="text" value="{{query.text}}" maxlength="200"></label>
% if source.origin:
<label>{{source.origin}}<input type="search" name="drop" value="{{query.drop}}" maxlength="200" placeholder="{{"id or logical node" if source.origin == "Drop" else "part of its name"}}"></label>
% end
% if query.oid:
<input type="hidden" name="oid" value="{{query.oid}}">
% end
<label>Level<select name="level"><option value="">any</option>
% for level in levels:
<option value="{{level}}"{{" selected" if level == query.level else ""}}>{{level.lower()}}{{"" if level == levels[-1] else " and above"}}</option>
% end
</select></label>
% if source.nodes:
<label>Node<select name="node"><option value="">any</option>
% for node in source.nodes:
<option value="{{node}}"{{" selected" if node == query.node else ""}}>{{shown_name(node, 60)}}</option>
% end
</select></label>
% end
<button type="submit">Show</button>
<a class="button" id="download" href="{{download}}" download>Download</a>
</form>
<div id="missing">
% for node in log.missing:
<div class="note warning"><p>Node <bdi>{{shown_name(node, 80)}}</bdi> did not answer: its lines are missing.</p></div>
% end
</div>
<p class="log-edge"><a class="button" id="older" href="{{address(before=log.older)}}"{{!" hidden" if log.is_first else ""}}>Older lines</a><span class="muted small" id="edge"{{!"" if log.is_first else " hidden"}}>This is the beginning of the log.</span></p>
<div class="log" id="lines" role="log" aria-live="off" aria-label="Lines" tabindex="0" data-api="{{source.api}}" data-page="{{source.page}}" data-ends="{{"yes" if source.ends else "no"}}" data-older="{{log.older}}" data-newer="{{log.newer}}" data-live="{{"yes" if is_live else "no"}}">
% for line in log.lines:
<div class="log-line {{style_of(line)}}"><time>{{moment_of(line)}}</time><span class="level">{{line.level.lower()}}</span><span class="origin">\\
% if line.drop:
<a href="{{source.page}}/drops/{{quoted(line.drop)}}" title="{{shown_name(line.drop, 120)}}"><bdi class="clip">{{shown_name(drop_label(line.name, line.drop), 120)}}</bdi></a>\\
% else:
<bdi class="clip">{{shown_name(line.name, 120)}}</bdi>\\
% end
<bdi class="muted">{{shown_name(line.node, 60)}}</bdi></span><code>{{line.text}}</code></div>
% end
</div>
<div class="empty" id="none"{{!" hidden" if log.lines else ""}}><p>No line matches.</p></div>
<p class="log-edge end"><label id="following"{{!"" if is_live else " hidden"}}><input type="checkbox" id="follow" checked> Scroll to new lines</label>
<a class="button" id="newest" href="{{address()}}"{{!"" if query.before else " hidden"}}>Newest lines</a></p>
