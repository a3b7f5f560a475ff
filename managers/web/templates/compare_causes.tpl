% if found.causes.rows:
<section class="block" aria-labelledby="causes-title">
<div class="section-head"><h2 id="causes-title">Failures by root cause</h2><a href="{{causes_url(found.first.session)}}">First session</a><a href="{{causes_url(found.second.session)}}">Second session</a></div>
% for cause in found.causes.rows:
<article class="note {{"error" if cause.change == "new" else ""}}">
<header><span class="change {{dict(new="added", gone="removed").get(cause.change, "changed")}}">{{cause.change}}</span><h3><bdi>{{shown_name(cause.name, 120)}}</bdi></h3><span class="muted small">{{cause.code}} <bdi>{{shown_name(cause.kind, 80)}}</bdi></span><span class="count">drops in error: {{format_count(cause.first)}} → {{format_count(cause.second)}}</span></header>
<p class="clip-long"><bdi>{{single_line(cause.text, 2000)}}</bdi></p>
% if cause.first_text:
<p class="hint">In the first session: <bdi>{{single_line(cause.first_text, 2000)}}</bdi></p>
% end
</article>
% end
% if found.causes.left_out:
<p class="muted small block-small">{{format_count(found.causes.left_out)}} more are not listed.</p>
% end
</section>
% end
