"""The documentation site: `make docs` builds it with Sphinx, furo and MyST.

The source directory is that of the repository, so that links of pages to examples and benchmarks are links of the site.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))
from generated_pages import PAGES

project = "dropflow"
author = "the dropflow developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["docs/**", "examples/README.md", "benchmarks/README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
exclude_patterns = ["docs/changelog.d/*.*.md", ".venv", "build"]
source_suffix = {".md": "markdown", ".ipynb": "markdown"}
suppress_warnings = ["ref.python"]  # words of docstrings that are names of several attributes, such as "path"

html_theme = "furo"
html_title = "dropflow"
html_copy_source = False
html_show_copyright = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]

highlight_language = "none"
default_role = "code"
myst_heading_anchors = 4

linkcheck_ignore = [r"https?://(127\.|10\.|localhost|HOST|[\w.]*example\.org)"]
linkcheck_retries = 2
linkcheck_timeout = 30

autodoc_default_options = {"members": True}
autodoc_typehints = "none"
napoleon_use_rtype = False
napoleon_use_ivar = True

_LINK = re.compile(r"\]\(((?!https?:)[^)#]+)\.(?:md|ipynb)\)")
_CODE = re.compile(r"[A-Z]{2}\d{3}")


def _read_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """Make text of a notebook, generated pages, and the navigation from the lists of links of the first page."""
    if docname in PAGES:
        source[0] = PAGES[docname](source[0])
    if app.env.doc2path(docname).suffix == ".ipynb":
        source[0] = "\n\n".join(_text_of(cell) for cell in json.loads(source[0])["cells"])
    if docname == root_doc:
        first, *sections = source[0].split("\n## ")
        source[0] = "\n## ".join([first, *map(_with_navigation, sections)])


def _with_navigation(section: str) -> str:
    caption, _, _ = section.partition("\n")
    pages = "\n".join(_LINK.findall(section))
    return f"{section.rstrip()}\n\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"


def _text_of(cell: dict[str, Any]) -> str:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return text
    blocks = [f"```python\n{text}\n```"]
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            picture = "".join(data["image/png"]).replace("\n", "")
            blocks.append(f"![A picture that the code above makes](data:image/png;base64,{picture})")
        else:
            blocks.append("```text\n" + "".join(output.get("text", data.get("text/plain", []))) + "\n```")
    return "\n\n".join(blocks)


def _leave_out_modules(_app: Sphinx, what: str, *event: Any) -> None:
    """Leave out docstrings of modules, which are for developers of dropflow."""
    if what == "module":
        event[-1].clear()


def _anchor_problems(app: Sphinx, document: nodes.document) -> None:
    """Give each row of the tables of problem codes its code as an anchor: ``problems.html#DF207``."""
    if app.env.current_document.docname == "docs/reference/problems":
        for row in document.findall(nodes.row):
            code = row[0].astext()
            if _CODE.fullmatch(code):
                row[0]["ids"].append(code)


def _lead_to_first_page(app: Sphinx, problem: Exception | None) -> None:
    """Make the top of the site lead to its first page."""
    if problem is None and app.builder.name == "html":
        page = '<!doctype html><meta http-equiv="refresh" content="0; url=docs/index.html">\n'
        Path(app.outdir, "index.html").write_text(page, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Add what this site has beyond the extensions."""
    app.connect("source-read", _read_source)
    app.connect("doctree-read", _anchor_problems)
    app.connect("autodoc-process-docstring", _leave_out_modules)
    app.connect("build-finished", _lead_to_first_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
