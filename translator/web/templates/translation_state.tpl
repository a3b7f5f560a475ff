<span class="badge"><span class="state {{style}}">{{word}}</span></span>
