"""WORKDIR/report.html: one file, of the table, pictures and origin of a comparison."""

import base64
import html
import html.parser
import re
import shutil

import pytest

from configs.default import model
from mimetic_jax.analysis import report_page
from mimetic_jax.train.record import commit
from mimetic_jax.train.store.files import path_of
from tests.training import quiet


class Page(html.parser.HTMLParser):
    """The cells of the tables, the sources of the pictures, the text, and what is open."""

    void = ("meta", "img")

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

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells.append(data)


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
    names = ("curves.png", "starts/default.png", "starts/mimetic.png")
    for source, name in zip(found.pictures, names, strict=True):
        kind, _, data = source.partition(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(data) == (trained.workdir / name).read_bytes()
    assert found.loaded == found.pictures
    assert not re.search(r"url\(|@import|<script|<link", page)


def test_a_page_says_what_trained_it(page):
    assert "<p><strong>mimetic: undecided (" in page
    assert page.count("main.py --config=mine.py --config.note=&lt;b&gt;") == 1
    assert f"commit {commit() or 'unknown'}" in page
    assert "scheme: SinCos() then Mimetic()" in page
    assert "on 360 examples; one of them is 0.28 points" in page
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


@pytest.mark.slow
def test_a_page_says_why_a_start_is_not_drawn(tiny, tmp_path):
    """The model has no attention."""
    config = tiny(scheme=(), steps=4)
    config.model = model("convmixer", width=8, depth=1, patch=2)
    comparison = quiet(config)
    comparison.train(tmp_path)
    report_page.analyze(comparison, path_of(tmp_path), "a command")
    text = (tmp_path / report_page.NAME).read_text()
    assert re.search(r"<p>run isn.t drawn: .*", html.unescape(text))
    assert len(Page(text).pictures) == 1
