<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
% if defined("refresh") and refresh:
<meta http-equiv="refresh" content="{{refresh}}">
% end
% door = layout.servers.browser_url(layout.servers.door())
% if door:
<meta name="dropflow-door" content="{{door}}">
% end
% server = layout.server(get("manager"))
<title>{{" · ".join(part for part in (title, server.name, "dropflow") if part)}}</title>
<script src="/static/theme.js"></script>
<script src="/static/page_key.js"></script>
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
<span class="aside"><bdi>{{server.aside}}</bdi></span>
</div>
</header>
<main id="main">
% if defined("heading"):
<div class="page-head">
<div>
% if get("crumbs"):
<p class="crumbs">\\
% for at, (word, address) in enumerate(crumbs):
{{!"<span>/</span>" if at else ""}}<a href="{{address}}"><bdi>{{word}}</bdi></a>\\
% end
</p>
% end
<h1 title="{{single_line(heading, 1000)}}"><bdi>{{single_line(heading, 200)}}</bdi></h1>
% if get("about"):
<p><bdi>{{about}}</bdi></p>
% end
</div>
<div class="actions">
% if get("controls"):
<div class="actions" data-part="actions">
% include(controls)
</div>
% end
<span class="live" id="live" role="status" data-state="off" hidden></span>
</div>
</div>
% if get("tabs"):
<nav class="tabs" aria-label="Parts of the session">
% for word, address in tabs:
<a href="{{address}}"{{!' aria-current="page"' if word == get("tab") else ""}}>{{word}}</a>
% end
</nav>
% end
% end
{{!base}}
</main>
<footer class="foot">
<span><bdi>{{server.footer}}</bdi></span>
% if server.as_of:
<span>As of {{format_time(server.as_of)}}</span>
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
