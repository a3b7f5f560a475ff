% for word, column, classes in columns:
% if sort_address:
% direction = {column: "ascending", "-" + column: "descending"}.get(sort, "none")
<th scope="col" class="{{classes}}" aria-sort="{{direction}}"><a class="sort" href="{{sort_address({column: "-" + column, "-" + column: ""}.get(sort, column))}}">{{word}}</a></th>
% else:
<th scope="col" class="{{classes}}">{{word}}</th>
% end
% end
