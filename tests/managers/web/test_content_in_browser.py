"""The contents of drops in a real browser."""

import re
from typing import Any

import numpy as np
import pytest

from dropflow.api.records import DropQuery
from dropflow.testing.drawing import fan
from dropflow.testing.fake_manager import FakeManager
from tests.browser import accessibility_findings, needs_chromium
from tests.preview.made_files import fits, npy, png

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_chromium]

_Y, _X = np.mgrid[:300, :400]
_SKY = np.random.default_rng(1).normal(0, 0.02, (300, 400)) + np.exp(-((_X - 150) ** 2 + (_Y - 120) ** 2) / 900)
_SKY[:40, :60] = np.nan
_CUBE = np.stack([_SKY[:64, 100:164].astype(np.float32) + plane for plane in range(3)])
_WAVE = np.sin(np.linspace(0, 40, 100_000)) * np.linspace(1, 0, 100_000)
_CSV = "time,flux,source\n" + "".join(f"{at},{at * 0.5},J{at:04}\n" for at in range(300))

_DRAWN = """async () => {
  const image = document.querySelector("#data img");
  await image.decode();
  return [image.naturalWidth, image.naturalHeight];
}"""

CONTENTS = {
    "picture": png((_X % 256).astype(np.uint8)),
    "fits": fits(
        np.zeros(0, np.uint8), _SKY.astype(np.float32), _CUBE, cards=[("BUNIT", "JY/BEAM"), ("OBJECT", "M 31")]
    ),
    "cube": npy(_CUBE),
    "line": npy(_WAVE),
    "csv": _CSV.encode(),
    "json": b'[{"name": "a", "beam": [1, 2]}, {"name": "b", "ok": true}]',
    "code": b"#!/usr/bin/env python\n# Doubles a number.\ndef double(x):\n    return 2 * x\n",
    "text": b"one\ntwo <script>alert(1)</script>\n",
    "page": b"<!doctype html><script>document.title = 'run'</script>",
    "damaged": npy(_CUBE)[:-9],
    "pickled": npy(np.array([{}], dtype=object)),
}
"""Contents of the first data drops of a session, by what they are."""


def manager_with_contents() -> FakeManager:
    """Return a manager with a session whose data drops have `CONTENTS`."""
    manager = FakeManager()
    graph = fan(40)
    manager.add(graph, "s")
    for row, content in zip(range(21, 41), CONTENTS.values(), strict=False):
        manager.write("s", row, content)
    manager.complete("s")
    return manager


def test_a_picture_is_zoomed_and_tells_its_values(serve: Any, look: Any) -> None:
    """The value under the pointer is shown; buttons, keys and wheel zoom and move; the address has what is shown."""
    manager = manager_with_contents()
    page = look(serve(manager)).page
    drops = {row.drop: row.oid for row in manager.drops("s", DropQuery(limit=1000)).drops}
    page.goto(f"/sessions/s/drops/{drops[21 + list(CONTENTS).index('cube')]}")
    viewer, frame = page.locator("#viewer"), page.locator("#viewer .frame")
    nearer = viewer.get_by_role("button", name="+")
    expect(nearer).to_be_visible()
    box = frame.bounding_box()
    assert box is not None
    frame.hover(position={"x": box["width"] * 0.5 + 1, "y": box["height"] * 0.5 + 1})
    expect(viewer.locator("output")).to_have_text(f"Value {_CUBE[0, 32, 32]:.9g}   Index 0, 32, 32")
    nearer.click()
    expect(page).to_have_url(re.compile(r"left=10&top=10&right=54&bottom=54"))
    viewer.focus()
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile(r"left=16&top=10&right=59&bottom=54"))
    page.locator("#data").get_by_role("slider").fill("2")
    expect(page).to_have_url(re.compile(r"plane=2&"))
    page.evaluate("import('/static/refresh.js').then((module) => module.refresh())")  # as pages of what runs do
    expect(nearer).to_have_count(1)
    expect(page.locator("#data").get_by_role("slider")).to_have_count(1)
    viewer.press("-")
    expect(page).to_have_url(re.compile(r"left=0&top=0&right=64&bottom=64"))
    viewer.press("+")
    expect(page).to_have_url(re.compile(r"left=10&top=10&right=54&bottom=54"))
    part = _CUBE[2, 10:54, 10:54]
    expect(page.locator("#data dd").nth(2)).to_have_text(f"{part.min():.6g}")
    page.reload()
    expect(page.locator("#data dd").nth(2)).to_have_text(f"{part.min():.6g}")
    expect(nearer).to_be_visible()
    after = frame.bounding_box()
    assert after is not None
    assert after["width"] == pytest.approx(box["width"], rel=0.05)
    page.keyboard.down("Control")
    frame.hover(position={"x": 5, "y": 5})
    page.mouse.wheel(0, 4000)
    page.keyboard.up("Control")
    expect(page).to_have_url(re.compile(r"left=0&top=0&right=64&bottom=64"))
    assert accessibility_findings(page) == []


def test_contents_are_shown_as_what_they_are(serve: Any, look: Any) -> None:
    """Pictures, arrays, tables, text and code; controls work; content is never a document; axe-core finds nothing."""
    manager = manager_with_contents()
    page = look(serve(manager), viewport={"width": 390, "height": 844}).page
    names = {row.drop: row.oid for row in manager.drops("s", DropQuery(limit=1000)).drops}
    addresses = {name: f"/sessions/s/drops/{names[21 + at]}" for at, name in enumerate(CONTENTS)}
    content = page.locator("#data")

    def drawn() -> list[int]:
        size: list[int] = page.evaluate(_DRAWN)
        return size

    page.goto(addresses["picture"])
    assert drawn() == [400, 300]
    page.goto(addresses["fits"])
    assert drawn() == [400, 300]
    expect(content).to_contain_text("JY/BEAM")
    content.get_by_label("Part").select_option("2")
    content.get_by_label("Brightness").select_option("asinh")
    content.get_by_label("Colours").select_option("colour")
    content.get_by_role("button", name="Show").click()
    expect(content.get_by_role("spinbutton")).to_have_value("0")
    assert drawn() == [64, 64]
    content.get_by_role("spinbutton").fill("2")
    content.get_by_role("button", name="Show").click()
    expect(content.locator("dd").nth(4)).to_contain_text("1.9")  # the least value of plane 2
    assert accessibility_findings(page) == []
    page.goto(addresses["line"])
    expect(content.get_by_role("img")).to_be_visible()
    assert accessibility_findings(page) == []
    page.goto(addresses["csv"])
    expect(content.get_by_role("columnheader")).to_have_text(["time", "flux", "source"])
    expect(content).to_contain_text("The first 200 rows of 300.")
    page.goto(addresses["json"])
    expect(content.get_by_role("cell", name="[1, 2]")).to_be_visible()
    page.goto(addresses["code"])
    expect(content.locator(".line")).to_have_count(4)
    assert accessibility_findings(page) == []
    page.goto(addresses["page"])
    expect(content).to_contain_text("document.title = 'run'")
    assert "run" not in page.title()
    for name, words in (("damaged", "the file has"), ("pickled", "only Python's pickle reads")):
        page.goto(addresses[name])
        expect(content).to_contain_text(words)
    answer = page.request.get(addresses["page"].replace("/drops/", "/pictures/"))
    assert answer.status == 400
    answer = page.request.get(addresses["fits"].replace("/drops/", "/pictures/"))
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
