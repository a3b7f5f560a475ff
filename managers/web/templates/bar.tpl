<svg class="bar{{" big" if big else ""}}" viewBox="0 0 100 1" preserveAspectRatio="none" role="img" aria-label="{{label}}">\\
% for part in segments(numbers):
<rect class="{{part.style}}" x="{{part.start}}" width="{{part.width}}" height="1"/>\\
% end
</svg>
