<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{title}} · {{shown(manager.name, 60)}} · dropflow</title>
<link rel="icon" href="/static/favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/dropflow.css">
% if twin:
<link rel="alternate" type="application/json" href="{{twin}}">
% end
% if script:
<script type="module" src="/static/{{script}}"></script>
% end
<script src="/static/key.js" defer></script>
</head>
<body>
<a class="skip-link" href="#main">Skip to the content</a>
<header class="masthead">
<div>
<a class="brand" href="/"><img src="/static/favicon.svg" alt="" width="22" height="22">dropflow</a>
<nav aria-label="Pages">
% for word, address in (("Overview", "/"), ("Nodes", "/nodes"), ("Sessions", "/sessions")):
<a href="{{address}}"{{!' aria-current="page"' if word == here else ""}}>{{word}}</a>
% end
</nav>
<span class="aside">{{manager.role}} <bdi>{{shown(manager.name, 60)}}</bdi></span>
</div>
</header>
<main id="main">
{{!base}}
</main>
<footer class="foot">
<span>dropflow {{manager.version}} on <bdi>{{shown(manager.host, 80)}}</bdi></span>
<span>As of {{stamp(manager.time)}}</span>
% if twin:
<a href="{{twin}}">This page as JSON</a>
% end
<a href="/openapi.json">API</a>
</footer>
</body>
</html>
