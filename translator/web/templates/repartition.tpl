<section class="block" id="again">
<div class="section-head"><h2>Change the partition</h2></div>
<form method="post" action="/translations/{{info.id}}/partition" class="sheet">
<div class="fields">
<label>Algorithm
<select name="algorithm">
% chosen = info.algorithm if info.algorithm in algorithms else algorithms[0]
% for name in algorithms:
<option{{!" selected" if name == chosen else ""}}>{{name}}</option>
% end
</select></label>
<label>Parts
<input type="number" name="parts" min="1" value="{{info.parts}}" required></label>
<label>Imbalance, per cent
<input type="number" name="imbalance" min="0" max="1000" step="any" value="{{f"{info.imbalance:g}"}}" required></label>
<button>Partition</button>
<button name="compare" value="yes">Compare all</button>
</div>
</form>
</section>
