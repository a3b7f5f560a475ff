"""The web pages of a manager: complete without JavaScript, updated live with it.

Read `pages` first: the route of each page. `views` has what a page shows, ``templates/`` its HTML, ``static/`` the
scripts.
"""
