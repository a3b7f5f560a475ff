<pre class="lines" tabindex="0">\\
% for line in text.replace("\r\n", "\n").rstrip("\n").split("\n"):
<span class="line">{{line}}</span>\\
% end
</pre>
