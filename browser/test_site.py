"""The report in a real headless Chromium, at desktop and phone width, light and dark: `make test-site`.

Screenshots go to the folder named by SHOTS (default: none are kept).
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# The least contrast of a text against what lies behind it (WCAG 2), the levels of headings, and fields and images without a name.
READABLE = """() => {
  const numbers = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = colour => {
    const [r, g, b] = colour.map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (; element; element = element.parentElement) {
      const colour = numbers(getComputedStyle(element).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  let contrast = 21;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || ["SCRIPT", "STYLE", "OPTION"].includes(element.tagName)) continue;
    const [low, high] = [light(numbers(getComputedStyle(element).color).slice(0, 3)), light(behind(element))].sort((a, b) => a - b);
    contrast = Math.min(contrast, (high + 0.05) / (low + 0.05));
  }
  return {
    contrast,
    headings: [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].map(h => Number(h.tagName[1])),
    unnamed: [...document.querySelectorAll("select, input")].filter(f => !f.labels.length).map(f => f.id)
      .concat([...document.images].filter(i => !i.alt).map(i => i.src)),
  };
}"""
SUITE = ROOT / ".venv" / "bin" / "python"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the kept evidence, built by the suite's own environment."""
    out = tmp_path_factory.mktemp("report") / "site"
    python = str(SUITE) if SUITE.exists() else sys.executable
    subprocess.run([python, "-m", "labcore", "report", "--out", str(out)], cwd=ROOT, check=True)
    return out


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for all tests."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "no Chromium on this machine; make test-site installs Debian's"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=QUIET)
        yield browser
        browser.close()


def pages(site: Path) -> list[Path]:
    return sorted(site.glob("*.html"))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_load_without_errors_and_fit_the_screen(site: Path, chromium: Any, size: str, scheme: str) -> None:
    context = chromium.new_context(viewport=SIZES[size], color_scheme=scheme, offline=True)
    shots = os.environ.get("SHOTS")
    for path in pages(site):
        page = context.new_page()
        said: list[str] = []
        page.on("console", lambda message, said=said: said.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error, said=said: said.append(str(error)))
        page.on("requestfailed", lambda request, said=said: said.append(f"failed: {request.url}"))
        page.goto(path.as_uri())
        page.evaluate("document.querySelectorAll('img').forEach(i => { i.loading = 'eager' })")
        page.wait_for_load_state("load")
        assert said == [], (path.name, said)
        assert page.evaluate("document.scrollingElement.scrollWidth <= window.innerWidth"), f"{path.name} is wider than a {size}"
        broken = page.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)")
        assert broken == [], (path.name, broken)
        if shots:
            Path(shots).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=str(Path(shots) / f"{path.stem}-{size}-{scheme}.png"), full_page=size == "desktop")
        page.close()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_can_be_read_by_eye_and_by_ear(site: Path, chromium: Any, scheme: str) -> None:
    page = chromium.new_page(color_scheme=scheme)
    for path in pages(site):
        page.goto(path.as_uri())
        found = page.evaluate(READABLE)
        assert found["contrast"] >= 4.5, (path.name, found)
        assert found["headings"][0] == 1 and found["headings"].count(1) == 1, (path.name, found["headings"])
        assert all(after <= before + 1 for before, after in itertools.pairwise(found["headings"])), (path.name, found["headings"])
        assert found["unnamed"] == [], path.name
    page.close()


def test_paper_shows_what_is_folded_on_the_front_page(site: Path, chromium: Any) -> None:
    page = chromium.new_page()
    page.goto((site / "index.html").as_uri())
    folded = page.locator("details:not([open]) li").first
    assert not folded.is_visible()
    page.emulate_media(media="print")
    assert folded.is_visible() and not page.locator("nav").is_visible()
    page.close()


def test_filters_show_what_they_say(site: Path, chromium: Any) -> None:
    page = chromium.new_page(viewport=SIZES["desktop"])
    page.goto((site / "claims.html").as_uri())
    total = page.locator("#claims tbody tr").count()
    assert page.locator("#count").inner_text() == f"{total} of {total} claims"
    for name, value in (("verdict", "open"), ("article", "D"), ("experiment", "06")):
        page.select_option(f"#by-{name}", value)
        shown = page.evaluate("[...document.querySelectorAll('#claims tbody tr')].filter(r => !r.hidden).map(r => ({...r.dataset}))")
        assert 0 < len(shown) < total and all(row[name] == value for row in shown), name
        assert page.locator("#count").inner_text() == f"{len(shown)} of {total} claims"
        page.select_option(f"#by-{name}", "")
    page.fill("#by-words", "no claim says this")
    assert page.locator("#count").inner_text() == f"0 of {total} claims"
    page.close()


def test_the_keyboard_reaches_the_content_and_the_filters(site: Path, chromium: Any) -> None:
    page = chromium.new_page(viewport=SIZES["desktop"])
    page.goto((site / "claims.html").as_uri())
    reached = []
    for _ in range(9):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
    assert reached[0] == "Skip to the content" and {"by-verdict", "by-article", "by-experiment", "by-words"} <= set(reached), reached
    page.close()


def test_every_link_leads_somewhere(site: Path, chromium: Any) -> None:
    page = chromium.new_page(viewport=SIZES["desktop"])
    for path in pages(site):
        page.goto(path.as_uri())
        for link in page.evaluate("[...document.querySelectorAll('a[href]')].map(a => a.href)"):
            target, _, fragment = link.partition("#")
            assert target.startswith("file://"), link
            file = Path(target.removeprefix("file://"))
            assert file.is_file(), link
            assert not fragment or f'id="{fragment}"' in file.read_text(encoding="utf-8"), link
    page.close()
