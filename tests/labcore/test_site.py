"""The report: every link resolves, nothing raw gets through, damage is shown, and equal evidence gives equal bytes."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from labcore import decisive, site
from labcore.sealed import Sealed
from labcore.workspace import Workspace

ROOT = Path(__file__).resolve().parents[2]
TOY = "90_toy"
CLAIMS = """
articles: {Z: "An article <b>with markup</b>"}
claims:
  Z01: {section: "1", experiment: "90", text: "A claim with <script>alert(1)</script>."}
  Z02: {section: "2", experiment: "91", text: "A claim without an experiment."}
"""


class Links(HTMLParser):
    """Collects ids, links, images without alt text, and scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.bare_images = self.scripts = self.headings = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.ids |= {named["id"] or ""} if "id" in named else set()
        self.links += [value for key in ("href", "src") if (value := named.get(key))]
        self.bare_images += tag == "img" and not named.get("alt")
        self.scripts += tag == "script"
        self.headings += tag == "h1"


@pytest.mark.parametrize("run", sorted(ROOT.glob("evidence/[0-9][0-9]_*/*")), ids=lambda run: run.parent.name)
def test_every_figure_shows_blocks_and_every_decided_claim_has_a_place_to_look_at(run: Path) -> None:
    protocol, source = Sealed(run).protocol, (ROOT / "experiments" / run.parent.name / "figure.py").read_text()
    figures = [path.stem for path in (run / "figures").glob("*.png")]
    read = decisive.shown(source, protocol.blocks)
    assert all(read.get(name, read["draw"]) for name in figures)
    looked_at = decisive.places(protocol, source, figures)
    assert all(looked_at[name] for name, claim in protocol.claims.items() if claim.measure)


def test_a_claim_is_looked_at_in_the_figure_of_its_table_or_else_in_the_table() -> None:
    run = next(ROOT.glob("evidence/06_stale_prefix/*"))
    source = (ROOT / "experiments" / "06_stale_prefix" / "figure.py").read_text()
    looked_at = decisive.places(Sealed(run).protocol, source, ["errors", "key"])
    assert looked_at["D05"] == [("figure", "errors")] and looked_at["D02"] == [("figure", "key")]
    assert looked_at["D11"] == [("table", "twice")]
    assert decisive.places(Sealed(run).protocol, "", [])["D05"] == [("table", "published")]


def test_a_value_that_is_called_as_a_block_is_no_block() -> None:
    run = next(ROOT.glob("evidence/04_leak_signatures/*"))
    assert decisive.read_by(Sealed(run).protocol, "A47") == ["judged"]


def test_functions_that_call_each_other_in_many_ways_are_read_once() -> None:
    each = " + ".join(f"f{other}(run)" for other in range(40))
    source = "".join(f"def f{number}(run):\n    return {each}\n" for number in range(40)) + "def f40(run):\n    run.table('pub')\n"
    found = decisive.shown(source.replace("f39(run):\n    return", "f39(run):\n    return f40(run) +"), ["pub", "published"])
    assert set(found) == {f"f{number}" for number in range(41)} and all(blocks == {"pub"} for blocks in found.values())


@pytest.mark.parametrize("text", ["def draw(:", "x = " + "-" * 100_000 + "1", "x = 1" + " + 1" * 50_000, "\0"])
def test_a_figure_file_that_is_no_python_shows_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "experiments" / TOY / "figure.py"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert site.source(Workspace(tmp_path), TOY) == ""


@pytest.fixture
def kept(project: Any) -> Any:
    (project.root / "conf" / "claims.yaml").write_text(CLAIMS)
    conf = project.root / "conf" / "experiment" / f"{TOY}.yaml"
    claim = conf.read_text().split("claims:\n")[1]
    conf.write_text(conf.read_text() + claim.replace("Z01", "own_statement"))
    assert project.call("protocol", "90").returncode == 0
    readme = project.root / "experiments" / TOY / "README.md"
    readme.write_text(readme.read_text().replace("## What it is not\n", "## What it is not\n\nNot <script>alert(2)</script> *this*.\n"))
    project.commit()
    assert project.call("run", "90").returncode == 0
    assert project.call("keep", "90").returncode == 0
    return project


def pages(project: Any) -> dict[str, str]:
    done = project.call("report")
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_text() for path in sorted((project.root / "site").glob("*.html"))}


def test_every_link_resolves_and_nothing_raw_gets_through(kept: Any) -> None:
    found = pages(kept)
    assert sorted(found) == ["90_toy.html", "claims.html", "index.html", "ledger.html"]
    parsed = {name: Links(text) for name, text in found.items()}
    for name, page in parsed.items():
        assert page.bare_images == 0 and page.headings == 1, name
        assert page.scripts == (name == "claims.html"), name
        assert len(found[name].encode()) < 1_000_000
        for link in page.links:
            target, _, fragment = link.partition("#")
            if link.startswith("data:"):
                continue
            assert "://" not in link, link
            assert not target or (kept.root / "site" / target).is_file(), link
            assert not fragment or fragment in parsed[target or name].ids, link
    assert "&lt;script&gt;alert(1)" in found["claims.html"] and "&lt;script&gt;alert(2)" in found["90_toy.html"]
    assert "<em>this</em>" in found["90_toy.html"]


def test_verdicts_and_open_claims_are_shown(kept: Any) -> None:
    found = pages(kept)
    assert "1 reproduced" in found["index.html"] and "1 open" in found["index.html"]
    assert "experiment 91 is still to come" in found["claims.html"]
    assert 'role="alert"' not in found["index.html"]


def test_equal_evidence_gives_equal_bytes(kept: Any) -> None:
    first = pages(kept)
    shutil.rmtree(kept.root / "site")
    assert pages(kept) == first


@pytest.mark.parametrize("damage", ["byte", "truncated", "manifest", "no results", "another manifest in the ledger"])
def test_damage_is_shown_and_never_hidden(kept: Any, damage: str) -> None:
    sealed = next((kept.root / "evidence" / TOY).glob("*/sealed"))
    arrays = sealed / "arrays.h5"
    if damage == "byte":
        data = bytearray(arrays.read_bytes())
        data[-3] ^= 1
        arrays.write_bytes(data)
    elif damage == "truncated":
        arrays.write_bytes(arrays.read_bytes()[:100])
    elif damage == "manifest":
        (sealed / "manifest.json").write_text("{")
    elif damage == "no results":
        (sealed / "results.csv").unlink()
    else:
        path = kept.root / "evidence" / "LEDGER.jsonl"
        path.write_text(re.sub(r'"manifest":"[0-9a-f]{8}', '"manifest":"00000000', path.read_text()))
    found = pages(kept)
    assert str(kept.root) not in "".join(found.values())
    if "ledger" in damage:
        assert "L503" in found["ledger.html"] and "L503" in found["90_toy.html"] and "The ledger: " in found["index.html"]
    for name in ("index.html", "90_toy.html"):
        assert 'role="alert"' in found[name] and "NOT VERIFIED" in found[name], name
    assert "1 reproduced" not in found["index.html"] and "2 open" in found["index.html"]
    assert "is NOT VERIFIED and decides nothing" in found["claims.html"]


def test_a_ledger_that_cannot_be_read_is_shown_as_that(kept: Any) -> None:
    (kept.root / "evidence" / "LEDGER.jsonl").write_text("{\n")
    found = pages(kept)
    assert all('role="alert"' in found[name] and "L501" in found[name] for name in ("index.html", "ledger.html"))


def test_a_broken_drawing_is_shown_from_its_other_file(kept: Any) -> None:
    drawing = next((kept.root / "evidence" / TOY).glob("*/figures/*.svg"))
    assert f'{drawing.stem}.svg" alt=' in pages(kept)["90_toy.html"]
    drawing.write_bytes(drawing.read_bytes()[:2000] + b"\xff")
    assert f'{drawing.stem}.png" alt=' in pages(kept)["90_toy.html"]


def test_the_headline_of_a_figure_is_its_description(kept: Any) -> None:
    drawing = next((kept.root / "evidence" / TOY).glob("*/figures/*.svg"))
    drawing.write_text(
        re.sub("<title>.*?</title>|(<metadata>)", r"<title>A &lt;finding&gt; &amp; more</title>\1", drawing.read_text(), count=1)
    )
    assert 'alt="Figure ' in (page := pages(kept)["90_toy.html"]) and ": A &lt;finding&gt; &amp; more. The numbers" in page
