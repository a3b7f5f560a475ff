% for warning in warnings:
<div class="note warning block" role="status"><p><bdi>{{single_line(warning, 2000)}}</bdi></p></div>
% end
