% rebase("layout.tpl", title="Translate a graph", here="Translate", heading="Translate a graph", about="Its constructs are unrolled and its drops are partitioned. Nothing runs yet: the next page has its problems, its size, and the form with its parameters that runs it.")
<form class="block translate" method="post" action="/translations" enctype="multipart/form-data">
<input type="hidden" name="manager" value="{{manager}}">
<section class="sheet">
<h2>Graph</h2>
<label><span>A file from EAGLE, a list of drops, or a <code>.dfg</code> file</span>
<input type="file" name="graph" accept=".graph,.json,.dfg"></label>
<details><summary>Paste the text of a graph instead</summary>
<label>Text of the graph
<textarea name="text" rows="8" spellcheck="false" class="mono"></textarea></label>
<label>Name
<input name="name" maxlength="200" autocomplete="off"></label>
</details>
</section>
<p class="actions"><button class="primary">Translate</button>
<span class="muted small">Up to {{format_size(limits.body)}}, {{plural(limits.drops, "drop")}} and {{format_duration(limits.seconds)}}.</span></p>
</form>
<section class="block">
<h2>From a repository</h2>
<form method="post" action="/repositories" class="stack" data-key>
<label>Address of a git repository, or of a graph in it
<input name="address" maxlength="2048" required spellcheck="false" autocomplete="off" class="mono" placeholder="git+https://github.com/ORG/REPO@main#path/in/repository.graph"></label>
<p class="actions"><button>Look</button><span class="muted small">A graph is translated as one part; of a repository the graphs are listed.</span></p>
</form>
</section>
<section class="block">
<h2>From EAGLE</h2>
<p class="muted">In EAGLE's settings, set <b>Translator URL</b> to this page's address followed by <code>/gen_pgt</code>. Then <b>Translate</b> opens the result here.</p>
</section>
