"""The site: built once, its pages read as files and, where there is a browser, as a reader sees them."""

import json
import os
import re
import shutil
import subprocess

import pytest

from tools import tables, workspace

pytestmark = pytest.mark.slow

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# Runs in the page: what a reader would do, and what they would see.
READER = """
const problems = [];
const LOCAL = /^(file|data|blob):/;
addEventListener("error", (event) => problems.push(event.message || `not loaded: ${event.target.src}`), true);
addEventListener("load", () => {
  const table = document.querySelector(".md-typeset table");
  const column = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent);
  const found = {
    problems,
    foreign: performance.getEntriesByType("resource").map((one) => one.name).filter((name) => !LOCAL.test(name)),
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    images: [...document.images].filter((one) => one.loading !== "lazy" && !one.naturalWidth).map((one) => one.src),
    formulas: document.querySelectorAll("math").length,
  };
  if (table) {
    table.tHead.rows[0].cells[0].click();
    found.up = column();
    table.tHead.rows[0].cells[0].click();
    found.down = column();
  }
  const box = document.querySelector(".filter");
  if (box) {
    box.value = "fails";
    box.dispatchEvent(new Event("input"));
    const rows = [...document.querySelectorAll(".md-typeset tbody tr")];
    found.shown = rows.filter((row) => !row.hidden).map((row) => row.textContent.toLowerCase());
    found.hidden = rows.filter((row) => row.hidden).length;
  }
  document.documentElement.innerHTML = `<body><pre id="found"></pre></body>`;
  document.getElementById("found").textContent = JSON.stringify(found);
});
"""


def released():
    return [package for package in tables.methods() if not package.is_draft]


@pytest.fixture(scope="module")
def site(tree, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    tree.nox("-s", "docs", "--", "--site-dir", str(folder))
    return folder


def test_every_package_has_a_page_and_nothing_is_asked_of_the_network(site):
    home = (site / "index.html").read_text(encoding="utf-8")
    for dist, package in workspace.discover().items():
        interface = (site / "api" / f"{dist}.html").read_text(encoding="utf-8")
        assert package.module in interface
        if not package.is_core:
            assert f'href="methods/{dist}/index.html"' in home
            assert (site / "methods" / dist / "index.html").exists()
    assert '<math xmlns="http' in (site / "guides" / "reading-a-card.html").read_text(encoding="utf-8")
    everywhere = [(site / f"{name}.html").read_text(encoding="utf-8") for name in ("claims", "benchmarks")]
    assert all(dist in page for page in everywhere for dist in workspace.discover() if dist != "offprints")


def test_the_gallery_shows_a_figure_of_every_method(site):
    home = (site / "index.html").read_text(encoding="utf-8")
    shown = re.findall(r'<img src="(methods/([^/"]+)/[^"]+)" alt="([^"]+)"', home)
    assert [dist for _, dist, _ in shown] == [package.dist for package in released()]
    assert all((site / path).stat().st_size > 5_000 for path, _, _ in shown)
    assert len({says for _, _, says in shown}) == len(shown)


def read(site, page, width, scheme):
    """What the reader found; the page is a copy with the reader in it."""
    path = site / page
    text = path.read_text(encoding="utf-8").replace("<head>", f"<head><script>{READER}</script>", 1)
    copy = path.with_name(f"read-{path.name}")
    copy.write_text(text, encoding="utf-8")
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},900"]
    command += ["--virtual-time-budget=8000", f"--user-data-dir={site / 'profile'}", "--dump-dom", copy.as_uri()]
    command += ["--blink-settings=preferredColorScheme=0"] * (scheme == "dark")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | {"HOME": str(site)})
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    return json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_browser_shows_every_page(site, width, scheme):
    pages = ["index.html", "claims.html", "benchmarks.html", "guides/reading-a-card.html"]
    pages += [f"methods/{package.dist}/index.html" for package in released()]
    for page in pages:
        found = read(site, page, width, scheme)
        assert found["problems"] == [], page
        assert found["foreign"] == [], page
        assert found["images"] == [], page
        assert found["wide"] <= 0, f"{page} is {found['wide']} pixels wider than a window of {width}"
        if "up" in found and len(set(found["up"])) == len(found["up"]):
            assert found["up"] == found["down"][::-1], page
        if page == "claims.html":
            assert found["shown"]
            assert found["hidden"]
            assert all("fails" in row for row in found["shown"])
    assert read(site, "guides/reading-a-card.html", width, scheme)["formulas"] > 0
