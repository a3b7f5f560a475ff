% name = session.session
<form class="downloads" method="get" action="{{session_api(name)}}/results/archive" aria-label="Download results">
<label>Text in path, id or name<input type="search" name="text" value="{{text}}" maxlength="200" placeholder="all results"></label>
% if len(session.nodes) > 1:
<label>Node<select name="node"><option value="">any</option>
% for one in session.nodes:
<option value="{{one}}"{{" selected" if one == node else ""}}>{{shown_name(one, 60)}}</option>
% end
</select></label>
% end
<button type="submit" name="format" value="tar">Download as tar</button>
<button type="submit" name="format" value="zip">as zip</button>
</form>
<p class="muted small">If the download fails, <code>MISSING.txt</code> in it names what is missing. On a command line: <code>dropflow fetch {{name}}</code></p>
