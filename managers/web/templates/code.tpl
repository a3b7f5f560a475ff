<pre class="lines" tabindex="0">\\
% for line in lines:
<span class="line">\\
% for style, text in line:
% if style:
<span class="{{style}}">{{text}}</span>\\
% else:
{{text}}\\
% end
% end
</span>\\
% end
</pre>
