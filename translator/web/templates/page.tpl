<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
% if refresh:
<meta http-equiv="refresh" content="{{refresh}}">
% end
<title>{{title}} · dropflow</title>
<link rel="icon" href="/static/favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/dropflow.css">
<link rel="stylesheet" href="/static/translator.css">
% if twin:
<link rel="alternate" type="application/json" href="{{twin}}">
% end
<script src="/static/key.js" defer></script>
</head>
<body>
<a class="skip-link" href="#main">Skip to the content</a>
<header class="masthead">
<div>
<a class="brand" href="/"><img src="/static/favicon.svg" alt="" width="22" height="22">dropflow</a>
<nav aria-label="Pages">
% for word, address in (("Translate", "/"), ("Translations", "/translations")):
<a href="{{address}}"{{!' aria-current="page"' if word == here else ""}}>{{word}}</a>
% end
</nav>
<span class="aside">translator</span>
</div>
</header>
<main id="main">
{{!base}}
</main>
<footer class="foot">
<span>dropflow {{version}}</span>
% if twin:
<a href="{{twin}}">This page as JSON</a>
% end
<a href="/openapi.json">API</a>
</footer>
</body>
</html>
