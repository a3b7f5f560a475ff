<div class="table" tabindex="0" role="region" aria-label="Nodes">
<table>
<thead><tr>
% include("sort_header.tpl", sort=sort, sort_address=sort_address, columns=(("Node", "name", ""), ("State", "state", ""), ("Sessions", "sessions", "number at-middle"), ("Processor", "processor", "load-column"), ("Memory", "memory", "load-column at-middle"), ("Disk", "disk", "load-column at-wide"), ("Attempts", "attempts", "number at-wide")))
</tr></thead>
<tbody>
% for node in nodes:
% load = node.load
<tr data-row="{{node.name}}">
<th scope="row" class="name">
% if node.url.startswith(("http://", "https://")):
<a href="{{hop_url(node.url, "/")}}" title="{{shown_name(node.name, 1000)}}"><bdi class="clip">{{shown_name(node.name)}}</bdi></a>
% else:
<bdi>{{shown_name(node.name)}}</bdi>
% end
<span class="sub"><a href="/nodes/{{quoted(node.name)}}">history</a>, <a href="/nodes/{{quoted(node.name)}}/log">log</a>, <bdi>{{shown_name(node.host)}}</bdi>\\
% if node.island:
 in <bdi>{{shown_name(node.island)}}</bdi>\\
% end
</span>
% if node.text:
<span class="sub"><bdi>{{single_line(node.text)}}</bdi></span>
% end
</th>
<td><span class="state {{node_style(node.state)}}">{{node.state}}</span></td>
<td class="number at-middle">{{format_count(node.sessions)}}</td>
% if load.cores or load.memory:
<td>
% include("load.tpl", word=f"{load.cores} cores", text=f"{load.processor:.0f} %", share=load.processor)
</td>
<td class="at-middle">
% used = load.memory - load.memory_free
% include("load.tpl", word=format_size(used), text=f"of {format_size(load.memory)}", share=100 * used / max(load.memory, 1))
</td>
<td class="at-wide">
% used = load.disk - load.disk_free
% include("load.tpl", word=format_size(used), text=f"of {format_size(load.disk)}", share=100 * used / max(load.disk, 1))
</td>
<td class="number at-wide">{{format_count(load.busy)}}<span class="sub">of {{plural(load.workers, "worker")}}</span>{{!f'<span class="sub">{load.gpus - load.gpus_free} of {plural(load.gpus, "GPU")}</span>' if load.gpus else ""}}</td>
% else:
<td class="muted" colspan="1">–</td><td class="muted at-middle">–</td><td class="muted at-wide">–</td><td class="muted number at-wide">–</td>
% end
</tr>
% end
</tbody>
</table>
</div>
