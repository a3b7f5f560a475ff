"""Pages with nothing but a card, without the navigation of a server: a form to confirm something, or an error."""

import bottle

from dropflow.rest.server.relative import relative_page

__all__ = ["card_page"]

# The card is HTML already; everything that `{{...}}` shows is escaped.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{title}} · dropflow</title>
<link rel="icon" href="/static/favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/dropflow.css">
% if script:
<script src="/static/{{script}}"></script>
% end
</head>
<body>
<main>
{{!card}}</main>
</body>
</html>
"""


def card_page(title: str, card: str, *, target: str, script: str = "", **values: object) -> str:
    """Return a page of HTML.

    Parameters
    ----------
    title : str
        Its title.
    card : str
        Template of the card.
    target : str
        Path and query of the request that it answers, to which its addresses are made relative.
    script : str
        File name of its script, if it has one.
    **values
        What the template shows.
    """
    shown = bottle.SimpleTemplate(card).render(**values)
    page: str = bottle.SimpleTemplate(_PAGE).render(title=title, card=shown, script=script)
    return relative_page(page, target)
