% session, query = view.session, view.query
% name = session.session
% rebase("page.tpl", title=f"Results of {shown_name(name, 80)}", here="Sessions", script="page.js" if not session.is_over else "")
<div class="page-head">
<div>
<p class="crumbs"><a href="/sessions">Sessions</a><span>/</span><a href="{{session_url(name)}}"><bdi>{{shown_name(name, 80)}}</bdi></a></p>
<h1>Results</h1>
<p data-part="sum">{{plural(view.total, "file")}}{{(" matches" if view.total == 1 else " match") if query.text or query.node else ""}}, {{format_size(view.size)}}</p>
</div>
<span class="live" id="live" role="status" data-state="off" hidden></span>
</div>
<section class="block" aria-label="List of results">
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
% include("results_table.tpl", results=view.results, session=name, sort=query.sort, sort_address=sort_address, style="table")
% include("pager.tpl", label="Pages of results", things="results", offset=query.offset, limit=query.limit, total=view.total, address=address)
% include("results_archive.tpl", session=session, text=query.text, node=query.node)
% elif query.text or query.node or query.offset:
<div class="empty"><p>No result matches.</p><p><a href="{{own}}">Show all</a></p></div>
% else:
<div class="empty"><p>No results yet.</p></div>
% end
</div>
</section>
