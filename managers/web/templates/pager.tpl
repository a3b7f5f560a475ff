<nav class="pager" aria-label="{{label}}">
% last = min(offset + limit, total)
<span>{{format_count(offset + 1 if last > offset else last)}}–{{format_count(last)}} of {{format_count(total)}} {{things}}</span>
<span class="actions">
% if offset > 0:
<a class="button" rel="prev" href="{{address(max(offset - limit, 0))}}">Previous</a>
% end
% if last < total:
<a class="button" rel="next" href="{{address(offset + limit)}}">Next</a>
% end
</span>
</nav>
