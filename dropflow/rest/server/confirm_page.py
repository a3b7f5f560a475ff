"""The page that asks for the token before a form changes something, if the browser has only the cookie.

It repeats the form with all its fields. Its script (``key.js``) exchanges the token for the page key, which the browser
keeps, so that it is not asked again. Without a script, the form is posted with the token.
"""

from collections.abc import Sequence

from dropflow.rest.server.card_page import card_page

__all__ = ["CONFIRM_POLICY", "confirm_page"]

# No "form-action": browsers also check where a posted form redirects to, which may be a manager on another host.
CONFIRM_POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; object-src 'none'"
"""The content security policy of the page."""

_ASKED = ("key", "token")

# Everything that `{{...}}` shows is escaped.
_FORM = """<form class="card" method="post" action="{{action}}" data-key>
<h1>Please confirm</h1>
% if wrong:
<p role="alert">That token was not accepted.</p>
% end
<p>Nothing has been changed yet. This browser is logged in to read; to change something, this page needs the token
once.</p>
% for name, value in fields:
<input type="hidden" name="{{name}}" value="{{value}}">
% end
<p><label>Token <input name="token" type="password" autocomplete="off" required autofocus></label></p>
<p class="muted">Or run <code>dropflow open</code> where you started dropflow: it prints an address that signs this
browser in, and then no page asks again. The token is at the end of the address that the server printed,
<code>/login#TOKEN</code>.</p>
<p class="actions"><button class="primary">Confirm</button></p>
</form>
"""


def confirm_page(target: str, fields: Sequence[tuple[str, str]]) -> str:
    """Return a page of HTML that asks for the token, and posts `fields` to `target` again.

    Parameters
    ----------
    target : str
        Path and query that the form was posted to.
    fields : sequence of (str, str)
        The posted form. A token in it was wrong.
    """
    kept = [(name, value) for name, value in fields if name not in _ASKED]
    wrong = any(name == "token" for name, _ in fields)
    return card_page("Please confirm", _FORM, target=target, script="key.js", action=target, fields=kept, wrong=wrong)
