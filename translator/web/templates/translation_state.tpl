<span class="badge"><span class="state {{state_looks}}">{{state_name}}</span></span>
