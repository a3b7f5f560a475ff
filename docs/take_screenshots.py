"""Takes the pictures of pages in the documents, from a real run in Chromium: ``make pictures``.

A cluster of four nodes runs examples in a directory of its own. The pictures have fixed sizes and are small. Times in
them differ from run to run.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser import chromium, open_browser  # noqa: E402 - the tests start browsers in the same way
from tests.processes import Running, run  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
SIZE = (1200, 760)
LARGEST = 150_000
"""Bytes of a picture."""

Show = Callable[["Site"], Any]


class Site:
    """The pages of a cluster in a browser that is signed in."""

    def __init__(self, page: Any, up: Running) -> None:
        self.page = page
        self.master = str(up.ready["master"])
        self.translator = str(up.ready["translator"])

    def open(self, path: str, ready: str) -> Any:
        """Open a page of the master, and wait for an element."""
        self.page.goto(f"{self.master}{path}")
        self.page.locator(ready).first.wait_for()
        return self.page

    def post_as_eagle(self, graph: str) -> Any:
        """Translate an example with the fields that EAGLE posts, and return the page."""
        fields = {"lg_name": graph, "json_data": (ROOT / "examples" / graph).read_text(encoding="utf-8")}
        fields |= {"algo": "metis", "num_par": "4", "num_islands": "0", "test": "false", "max_load_imb": "100"}
        self.page.goto(f"{self.translator}/")
        self.page.evaluate(
            """([action, fields]) => {
              const form = document.createElement("form");
              Object.assign(form, { method: "post", action });
              for (const [name, value] of Object.entries(fields)) {
                const field = document.createElement("textarea");
                Object.assign(field, { name, value, hidden: true });
                form.append(field);
              }
              document.body.append(form);
              form.submit();
            }""",
            [f"{self.translator}/gen_pgt", fields],
        )
        self.page.get_by_role("button", name="Deploy and watch").wait_for()
        return self.page


def _session(site: Site) -> Any:
    return site.open("/sessions/sky", "text=catalogue.txt")


def _failure(site: Site) -> Any:
    return site.open("/sessions/strict", "text=below the horizon")


def _graph(site: Site) -> Any:
    return site.open("/sessions/sky/graph", "#graph[data-ready=yes]")


def _timeline(site: Site) -> Any:
    return site.open("/sessions/sky/timeline", "#timeline[data-attempts='24']")


def _translation(site: Site) -> Any:
    return site.post_as_eagle("imaging.graph")


def _template(site: Site) -> Any:
    page = site.post_as_eagle("estimate-pi.graph")
    page.get_by_text("Points in each batch").first.wait_for()
    return page


SHOWN: dict[str, Show] = {
    "session": _session,
    "failure": _failure,
    "graph": _graph,
    "timeline": _timeline,
    "translation": _translation,
    "template": _template,
}
"""What each picture shows."""


@contextmanager
def cluster(home: Path) -> Iterator[Running]:
    """Run four nodes, with a session that finished and one that failed.

    Raises
    ------
    RuntimeError
        They did not start.
    """
    with Running(home, "up", "--nodes", 4, "--port", 0) as up:
        if not up.line:
            raise RuntimeError(f"the cluster did not start: {up.errors}")
        for session, graph, *settings in (
            ("sky", "imaging.graph"),
            ("strict", "error-threshold.graph", "--set", "Collect.input_error_threshold=10"),
        ):
            run(home, "submit", ROOT / "examples" / graph, *settings, "--name", session, "--wait")
        yield up


def compressed(png: bytes) -> bytes:
    """Return a picture in a smaller file; with few colours only if it must be, as similar ones become the same.

    Raises
    ------
    ValueError
        It is still too large.
    """
    whole, few = BytesIO(), BytesIO()
    with Image.open(BytesIO(png)) as image:
        plain = image.convert("RGB")
        plain.save(whole, "PNG", optimize=True)
        plain.quantize(256, dither=Image.Dither.NONE).save(few, "PNG", optimize=True)
    content = whole.getvalue() if len(whole.getvalue()) <= LARGEST else few.getvalue()
    if len(content) > LARGEST:
        raise ValueError(f"a picture has {len(content):,} bytes, more than {LARGEST:,}")
    return content


def main() -> int:
    """Write all pictures, or those that arguments name."""
    if chromium() is None:
        print("Chromium is absent: run tests/bring_tools.sh as root, or install it", file=sys.stderr)
        return 1
    PICTURES.mkdir(exist_ok=True)
    with TemporaryDirectory() as home, cluster(Path(home)) as up, open_browser() as browser:
        wide, high = SIZE
        context = browser.new_context(
            viewport={"width": wide, "height": high}, color_scheme="light", reduced_motion="reduce"
        )
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.goto(f"{up.ready['master']}/login#{up.ready['token']}")
        page.wait_for_url(f"{up.ready['master']}/")
        for name in sys.argv[1:] or SHOWN:
            content = compressed(SHOWN[name](Site(page, up)).screenshot(animations="disabled"))
            (PICTURES / f"{name}.png").write_bytes(content)
            print(f"docs/pictures/{name}.png: {len(content):,} bytes")
        context.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
