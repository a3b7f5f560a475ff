% rebase("layout.tpl", title="Graphs of a repository", here="Translate", heading="Graphs of a repository", about=f"{address} at commit {found.commit}.")
<section class="block">
% if found.graphs:
<div class="table" tabindex="0" role="region" aria-label="Graphs"><table>
<thead><tr><th scope="col">Graph</th><th scope="col">Action</th></tr></thead>
<tbody>
% for path, place in found.graphs.items():
<tr><th scope="row"><bdi>{{single_line(path, 200)}}</bdi></th>
<td><form method="post" action="/repositories" data-key><input type="hidden" name="address" value="{{place}}"><button aria-label="Translate {{single_line(path, 200)}}">Translate</button></form></td></tr>
% end
</tbody></table></div>
% else:
<div class="empty"><p>There is no file here whose name ends with .graph.</p><p><a href="/">Translate another graph</a></p></div>
% end
</section>
