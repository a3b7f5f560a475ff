<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
% if defined("refresh") and refresh:
<meta http-equiv="refresh" content="{{refresh}}">
% end
% door = layout.places.browser_url(layout.places.door())
% if door:
<meta name="dropflow-door" content="{{door}}">
% end
<title>{{title}} · dropflow</title>
<script src="/static/theme.js"></script>
<script src="/static/key.js"></script>
<link rel="icon" href="/static/favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/dropflow.css">
% for layout_sheet in layout.style_sheets:
<link rel="stylesheet" href="/static/{{layout_sheet}}">
% end
% if defined("sheet"):
<link rel="stylesheet" href="/static/{{sheet}}">
% end
% if twin:
<link rel="alternate" type="application/json" href="{{twin}}">
% end
% if defined("script") and script:
<script type="module" src="/static/{{script}}"></script>
% end
<script type="module" src="/static/kit.js"></script>
</head>
<body>
<a class="skip-link" href="#main">Skip to the content</a>
<header class="masthead">
<div>
<a class="brand" href="/"><img src="/static/favicon.svg" alt="" width="22" height="22">dropflow</a>
<nav aria-label="Pages">
% for word, address in layout.navigation:
<a href="{{address}}"{{!' aria-current="page"' if word == here else ""}}>{{word}}</a>
% end
% for word, address in layout.elsewhere():
<a href="{{address}}">{{word}}</a>
% end
</nav>
<span class="aside"><bdi>{{aside}}</bdi></span>
</div>
</header>
<main id="main">
{{!base}}
</main>
<footer class="foot">
<span><bdi>{{footer}}</bdi></span>
% if defined("as_of"):
<span>As of {{format_time(as_of)}}</span>
% end
% if twin:
<a href="{{twin}}">This page as JSON</a>
% end
<a href="/openapi.json">API</a>
<button type="button" id="theme" hidden>Colours</button>
<button type="button" id="help" hidden>Keys</button>
</footer>
</body>
</html>
