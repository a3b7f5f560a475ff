<div class="table" tabindex="0" role="region" aria-label="Results"><table>
<thead><tr>
% include("sort_header.tpl", sort=sort, sort_address=sort_address, columns=(("File", "path", ""), ("Drop", "name", "at-middle"), ("Node", "node", "at-wide"), ("Size", "size", "number")))
<th scope="col"><span class="unseen">Download</span></th></tr></thead>
<tbody>
% for result in results:
<tr data-row="{{result.drop}}"><th scope="row"><bdi>{{shown_name(result.path)}}</bdi>{{!f" <small>made from {100 * (1 - result.missing):.3g} % of the data</small>" if result.missing else ""}}</th><td class="at-middle"><a href="{{drop_url(session, result.oid)}}"><bdi>{{shown_name(result.name, 120)}}</bdi></a></td><td class="at-wide"><bdi>{{shown_name(result.node, 80)}}</bdi></td><td class="number">{{format_size(result.size)}}</td><td class="number"><a href="{{api_url(session, result.oid, "data")}}" download aria-label="Download {{shown_name(result.path, 120)}}">Download</a></td></tr>
% end
</tbody></table></div>
