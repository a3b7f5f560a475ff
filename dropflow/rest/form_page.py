"""Pages with nothing but a form, without the navigation of a server: to confirm something, or to go on elsewhere."""

import bottle

__all__ = ["form_page"]

# The form is HTML already; everything that `{{...}}` shows is escaped.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{title}} · dropflow</title>
<link rel="icon" href="/static/favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/dropflow.css">
<script src="/static/key.js" defer></script>
</head>
<body>
<main>
{{!form}}</main>
</body>
</html>
"""


def form_page(title: str, form: str, **values: object) -> str:
    """Return a page of HTML.

    Parameters
    ----------
    title : str
        Its title.
    form : str
        Template of the form.
    **values
        What the template shows.
    """
    page: str = bottle.SimpleTemplate(_PAGE).render(title=title, form=bottle.SimpleTemplate(form).render(**values))
    return page
