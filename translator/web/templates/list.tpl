% rebase("layout.tpl", title="Translations", here="Translations", heading="Translations", about="The youngest first. When there are many, the oldest are deleted.")
<section class="block">
% if translations:
<div class="table" tabindex="0" role="region" aria-label="Translations"><table>
<thead><tr><th scope="col">Graph</th><th scope="col">State</th><th scope="col" class="at-middle">Partition</th><th scope="col">Since</th></tr></thead>
<tbody>
% for one in translations:
<tr><th scope="row"><a href="/translations/{{one.id}}"><bdi>{{single_line(one.name, 120)}}</bdi></a></th>
<td><span class="state {{dict(done="completed", refused="error", failed="error", running="running").get(one.state, "waiting")}}">{{one.state}}</span></td>
<td class="at-middle muted">{{plural(one.parts, "part")}}, {{single_line(one.algorithm, 40)}}</td>
<td class="muted nowrap">{{format_time(one.created)}}</td></tr>
% end
</tbody></table></div>
% else:
<div class="empty"><p>Nothing has been translated yet.</p><p><a href="/">Translate a graph</a></p></div>
% end
</section>
