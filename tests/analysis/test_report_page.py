"""WORKDIR/report.html: one file, of the table, pictures and origin of a comparison."""

import base64
import html
import html.parser
import json
import re
import shutil

import pytest

from configs.default import model
from mimetic_jax.analysis import report_page, starts
from mimetic_jax.command.shipped import load
from mimetic_jax.schemes import Whitened, ZeroOut
from mimetic_jax.train.config import to_json
from mimetic_jax.train.record import commit
from mimetic_jax.train.store.files import path_of
from tests.training import quiet


class Page(html.parser.HTMLParser):
    """The cells of the tables, the sources of the pictures, the text, and what is open."""

    void = ("meta", "img", "wbr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.pictures: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "img":
            self.pictures.append(given["src"] or "")
        self.loaded += [value for name in ("src", "href") if (value := given.get(name))]
        self.open += [tag] * (tag not in self.void)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data.replace("\u00a0", " ")


@pytest.fixture(scope="module")
def page(trained):
    workdir = path_of(trained.workdir)
    command = "main.py --config=mine.py --config.note=<b>"
    for _ in range(2):  # the same command once
        report_page.analyze(trained.comparison, workdir, command)
    return (workdir / report_page.NAME).read_text()


def test_a_page_has_the_table_and_needs_no_other_file(trained, page):
    """Its cells are those of table.md; its pictures are those of the workdir, as PNG."""
    found = Page(page)
    assert found.open == []
    header, _, *rows = (trained.workdir / "table.md").read_text().split("\n\n")[0].splitlines()
    for line in (header, *rows):
        for cell in filter(None, map(str.strip, line.strip("|").split("|"))):
            assert cell in found.cells
    names = ("curves.png", "starts/mimetic.0.positions.png", "starts/mimetic.0.products.png")
    for source, name in zip(found.pictures, names, strict=True):
        kind, _, data = source.partition(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(data) == (trained.workdir / name).read_bytes()
    assert found.loaded == found.pictures
    assert not re.search(r"url\(|@import|<script|<link", page)


def test_a_page_says_what_trained_it(page):
    assert "<p><strong>mimetic: inconclusive (" in page
    assert page.count("main.py --config=mine.py --config.note=&lt;b&gt;") == 1
    assert f"commit {commit() or 'unknown'}" in page
    assert "<code>scheme: SinCos() then Mimetic()</code>" in page
    assert "on 360 images; one of them is 0.28 points" in page
    assert "1,437 to train on, of 10 classes" in page
    assert "<p>1 seed can&#39;t show a gain: it takes 3</p>" in page
    assert "&#34;batch&#34;: 32," in page


def test_a_report_of_a_workdir_is_that_page(trained, page, capsys):
    report_page.main([str(trained.workdir)])
    assert capsys.readouterr().out == f"report: {trained.workdir / report_page.NAME}\n"
    assert (trained.workdir / report_page.NAME).read_text() == page


def test_what_was_not_drawn_when_training_ended_is_drawn_with_the_report(trained, page, tmp_path):
    """As where matplotlib was missing then; of the configuration that the workdir has."""
    workdir = shutil.copytree(trained.workdir, tmp_path / "workdir")
    shutil.rmtree(workdir / "starts")
    report_page.main([str(workdir)])
    assert Page((workdir / report_page.NAME).read_text()).pictures == Page(page).pictures


def test_each_arm_has_its_own_learning_rate(trained, page, tmp_path):
    """As after a search, which leaves the rates in the workdir."""
    workdir = path_of(shutil.copytree(trained.workdir, tmp_path / "workdir"))
    claim = json.loads((workdir / "config.json").read_text())
    claim["config"]["arms"]["mimetic"]["optimizer"] = {"learning_rate": 2.5e-3}
    (workdir / "config.json").write_text(json.dumps(claim))
    report_page.write(workdir, trained.comparison)
    text = (workdir / report_page.NAME).read_text()
    assert "<td>default</td><td>1e-3</td>" in text
    assert "<td>mimetic</td><td>2.5e-3</td>" in text
    assert "<code>scheme: SinCos() then Mimetic()</code>" in text


def test_what_is_not_finished_is_named(trained, page, tmp_path):
    assert "unfinished" not in page
    workdir = path_of(shutil.copytree(trained.workdir, tmp_path / "workdir"))
    claim = json.loads((workdir / "config.json").read_text())
    claim["config"]["seeds"] = [0, 4, 5]
    (workdir / "config.json").write_text(json.dumps(claim))
    shutil.rmtree(workdir / "runs" / "mimetic")
    report_page.write(workdir)
    text = (workdir / report_page.NAME).read_text()
    others = "default (seeds 4, 5), mimetic (seeds 0, 4, 5)"
    assert f"as unfinished or diverged: {others}." in text


def test_a_start_is_drawn_where_an_arm_differs_from_noise(tiny, tmp_path):
    """Zeros have no picture: their products lean nowhere."""
    config = tiny(scheme=())
    config.arms = {"whitened": {"scheme": (Whitened(),)}, "zero": {"scheme": (ZeroOut(mlp=True),)}}
    config.model.pool = "mean"  # a class token would be near zero
    comparison = quiet(config)
    for arm in comparison.arms.values():
        starts.draw(comparison, arm, path_of(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["whitened.0.patches.png"]


def test_the_pictures_are_of_the_seed_that_the_page_names(trained, tmp_path):
    """Also where a command with another first seed has drawn its own before."""
    workdir = path_of(shutil.copytree(trained.workdir, tmp_path / "workdir"))
    drawn = sorted(path.name for path in (workdir / "starts").iterdir())
    assert drawn
    assert all(".0." in name for name in drawn)
    shutil.rmtree(workdir / "starts")
    config = trained.comparison.config.copy_and_resolve_references()
    config.seeds = (7, 8)
    report_page.write(workdir, trained.comparison.alike(config))
    assert sorted(path.name for path in (workdir / "starts").iterdir()) == drawn


def test_the_files_that_are_held_out_are_listed(tmp_path):
    for name in "abcdefghij":
        (tmp_path / f"{name}.txt").write_text(f"{name} word\n" * 40)
    config = load("text:level=word,width=8,depth=1,heads=1,length=8,steps=4")
    config.data.dir = str(tmp_path)
    facts = report_page._facts(to_json(config), quiet(config))
    assert re.search(r"; tested on [a-j]\.txt; validated on [a-j]\.txt$", facts["data"])


def test_a_page_says_why_a_start_is_not_drawn(trained, page, tmp_path):
    workdir = shutil.copytree(trained.workdir, tmp_path / "workdir")
    shutil.rmtree(workdir / "starts")
    config = workdir / "config.json"
    config.write_text(config.read_text().replace('"digits"', '"gone"'))
    report_page.main([str(workdir)])
    text = (workdir / report_page.NAME).read_text()
    assert re.search(r"Without a picture: default, mimetic \(.*'gone'", html.unescape(text))
    assert len(Page(text).pictures) == 1


@pytest.mark.slow
def test_a_page_of_arms_without_pictures_has_no_place_for_them(tiny, tmp_path):
    """The model has no attention."""
    config = tiny(scheme=(), steps=4)
    config.model = model("convmixer", width=8, depth=1, patch=2)
    comparison = quiet(config)
    comparison.train(tmp_path)
    report_page.analyze(comparison, path_of(tmp_path), "a command")
    text = (tmp_path / report_page.NAME).read_text()
    assert "What the arms start from" not in text
    assert len(Page(text).pictures) == 1
