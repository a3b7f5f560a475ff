% if listed.left_out:
<p class="muted small after">and {{plural(listed.left_out, noun)}} more.</p>
% end
