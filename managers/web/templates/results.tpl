% session, query = view.session, view.query
% name = session.session
% rebase("session_frame.tpl", title=f"Results of {shown_name(name, 80)}", tab="Results", script="page.js" if not session.is_over else "")
<section class="block">
<div class="section-head"><h2>Results</h2><span class="muted" data-part="sum">{{plural(view.total, "file")}}{{(" matches" if view.total == 1 else " match") if query.text or query.node else ""}}, {{format_size(view.size)}}</span></div>
<form class="filters few" method="get" action="{{own}}" data-parts="sum results">
% if query.sort:
<input type="hidden" name="sort" value="{{query.sort}}">
% end
<label>Text in path, id or name<input type="search" name="text" value="{{query.text}}" maxlength="200"></label>
<label>Node<select name="node"><option value="">any</option>
% for node in session.nodes:
<option value="{{node}}"{{" selected" if node == query.node else ""}}>{{shown_name(node, 60)}}</option>
% end
</select></label>
<button type="submit">Show</button>
</form>
<div data-part="results">
% include("warnings.tpl", warnings=view.warnings)
% if view.results:
% include("results_table.tpl", results=view.results, session=name, sort=query.sort, sort_address=sort_address)
% include("pager.tpl", label="Pages of results", things="results", offset=query.offset, limit=query.limit, total=view.total, address=address)
<form class="downloads" method="get" action="{{session_api(name)}}/results/archive" aria-label="Download results">
<input type="hidden" name="text" value="{{query.text}}">
<input type="hidden" name="node" value="{{query.node}}">
<button type="submit" name="format" value="tar">Download as tar</button>
<button type="submit" name="format" value="zip">as zip</button>
</form>
<p class="muted small">If the download fails, <code>MISSING.txt</code> in it names missing results. On a command line: <code>dropflow fetch {{name}}</code></p>
% elif query.text or query.node or query.offset:
<div class="empty"><p>No result matches.</p><p><a href="{{own}}">Show all</a></p></div>
% else:
<div class="empty"><p>No results yet.</p></div>
% end
</div>
</section>
