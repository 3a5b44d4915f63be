"""Tables of rows, published beside ours: printed, and inside of hand-written pages of docs/ and
results/tables/.

A page has each between two markers:

    <!-- table: attention -->
    …
    <!-- end -->

`table: PAPER` has what a paper printed and what we trained of it, `table: PAPER/TABLE` every arm of
a table. Tables that are closed, which today's code doesn't train, are shown as they stand in
results/closed/NAME.md, from its line --- on. `table: types` has the types of Hugging Face's models,
`table: commands` the flags of all commands.
"""

from __future__ import annotations

import pathlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from launch.results import ResultStore
from launch.runner import load
from mimetic_jax import zoo
from mimetic_jax.analysis import report_page
from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.base.table import paragraph
from mimetic_jax.command import export, files, usage
from mimetic_jax.data import download
from mimetic_jax.train.config import arms_of
from mimetic_jax.train.rates import format_rate
from mimetic_jax.train.record import commit
from mimetic_jax.train.report import markdown, trimmed
from mimetic_jax.train.statistics import Difference, holm, table_spread
from mimetic_jax.train.verdicts import COMPARED, DEFAULT, spread_rule
from mimetic_jax.zoo.model_types import TYPES as MODEL_TYPES
from mimetic_jax.zoo.model_types import ModelType
from papers import TABLES, rows_of
from papers.record import Row, Table

_WIDTH = 120
FOLDERS = pathlib.Path("docs"), pathlib.Path("results/tables")
CLOSED = pathlib.Path("results/closed")
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

_PUBLISHED = ("attention", "structured", "mlp")
"""The papers whose numbers stand on a page."""

_STARTS = {"timm": "timm's N(0, .02²)", "torch": "PyTorch's", "flax": "Flax's"}
"""What the default is, by the `base` of a model."""

HEAD = ("row", "arm", "published", "best at", "ours ± sd (n)", *COMPARED)
"""Columns of rows, published and ours side by side."""

PAIRS = ("row", "pair", "difference [95% CI]", "p, corrected (Holm)")
"""Columns of pairs of arms."""


def table(rows: Sequence[Row], results: ResultStore) -> str:
    """Show published and ours of some rows of a table, with every arm that was trained."""
    lines = [line for row in rows for line in side_by_side(row, results, every=True)]
    more = [line for row in rows for line in differences(row, results)]
    pairs = markdown(trimmed(PAIRS, more)) if more else ""
    return "\n\n".join(
        filter(None, [markdown(trimmed(HEAD, lines)), pairs, remarks(rows, results)])
    )


def differences(row: Row, results: ResultStore) -> Iterator[Sequence[str]]:
    """Yield the lines of a row's pairs, with p corrected for their number."""
    arms = results.compared_arms(row)
    _, spread = table_spread(result.reached for result in arms.values())
    pairs = [(arms[one], arms[other]) for one, other in row.pairs if {one, other} <= arms.keys()]
    waiting = [Difference(0, None, None, n=0, p=1.0)] * (len(row.pairs) - len(pairs))
    corrected = holm([*(ours.versus(theirs, spread) for ours, theirs in pairs), *waiting])
    for (ours, theirs), found in zip(pairs, corrected, strict=False):
        if found:
            p = "" if found.p is None else f"{found.p:.2g}"
            shown = f"{found:.{ours.score.digits}f}"
            yield f"{row.place.number}. {row.label}", f"{ours.arm} − {theirs.arm}", shown, p


def remarks(rows: Sequence[Row], results: ResultStore) -> str:
    """Say below a table which spread the intervals of each row have, its rates, and what of its
    arms was drawn otherwise than today."""
    several = len({row.place.table for row in rows}) > 1
    trained = [row.place for row in rows if results.of(row).records]
    sizes = Counter((place.table, place.number) for place in trained)
    said, noted = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for row in rows:
        arms = results.compared_arms(row).values()
        table, number, _ = row.place
        name = f"{table.partition('/')[2]} {number}" if several else str(number)
        if row.place.is_small and sizes[table, number] > 1:
            name += " scaled down"
        if rule := spread_rule(arms):
            said[rule[0]].append(f"{name} ({rule[1]})")
        if len(arms) > 1 and not row.ladder:
            said["One learning rate for all arms"].append(name)
        for arm, text in results.of(row).remarks.items():
            noted[text].append(f"{arm} (row {name})")
    sentences = [f"{what}: row{'s' * (len(of) > 1)} {', '.join(of)}." for what, of in said.items()]
    sentences += [f"{', '.join(of)}: {text}." for text, of in noted.items()]
    return paragraph(" ".join(sentences), "", _WIDTH)


def side_by_side(row: Row, results: ResultStore, *, every: bool = False) -> Iterator[Sequence[str]]:
    """Yield the lines of a row: its published scores after the default's, each with ours.

    With `every` the arms that have no published score follow; where arms choose their rates, the
    best comes first, and † marks a rate with a neighbor that the arm didn't try.
    """
    name = f"{row.place.number}. {row.label}"
    if every and row.place.is_small:
        name += ", scaled down"
    reached, chosen = results.compared_arms(row), results.choices(row)
    if chosen:
        higher = any(result.score.higher for result in reached.values())
        order = sorted(reached.values(), key=lambda result: result.mean, reverse=higher)
        reached = {result.arm: result for result in order}

    def ours(arm: str) -> tuple[str, ...]:
        if not (result := reached.get(arm)):
            return ()
        rate = ""
        if arm in chosen:
            rate = format_rate(chosen[arm].rate) + ("†" if chosen[arm].is_edge else "")
        return rate, f"{result.mean_and_sd()} ({len(result.reached)})", *result.compared()

    scores = {arm: printed(score) for arm, score in row.published.items()}
    start = f"{scores.pop(DEFAULT)} → " if DEFAULT in scores and len(scores) > 1 else ""
    if reached:
        for arm, text in scores.items():
            yield name, arm, start + text, *ours(arm)
    elif scores:
        yield name, ", ".join(scores), start + ", ".join(scores.values())
    if every:
        for arm in reached:
            if arm not in scores:
                yield name, arm, "", *ours(arm)
    if row.is_untrained:
        yield name, ", ".join(row.others), ", ".join(map(printed, row.others.values()))
    else:
        yield from ((name, other, printed(score)) for other, score in row.others.items())


def printed(score: float) -> str:
    """Write a published score with its digits, at least two.

    >>> printed(91.4), printed(1.233)
    ('91.40', '1.233')
    """
    return f"{score:.{max(2, len(str(score).partition('.')[2]))}f}"


def pages(results: ResultStore) -> dict[pathlib.Path, str]:
    """Fill the pages that have tables with those of today's results."""
    paths = (path for folder in FOLDERS for path in sorted(folder.glob("*.md")))
    texts = {path: path.read_text(encoding="utf-8") for path in paths}

    def between(match: re.Match[str]) -> str:
        return f"{match[1]}\n{block(match[2], results)}\n\n{match[3]}"

    return {path: BLOCK.sub(between, text) for path, text in texts.items() if BLOCK.search(text)}


def block(name: str, results: ResultStore) -> str:
    """Return what stands between the markers of a name."""
    if (closed := CLOSED / f"{name}.md").is_file():
        return closed.read_text(encoding="utf-8").partition("\n---\n")[2].strip()
    if name in _PUBLISHED:
        return _published(name, results)
    if name == "types":
        return _types()
    if name == "commands":
        parsers = (files.rewrite_parser, files.check_parser, files.fit_parser, export.make_parser)
        more = (report_page.make_parser, download.make_parser)
        return "\n".join(usage.page([make() for make in (*parsers, *more)])).strip()
    if name not in TABLES:
        raise unknown("table", name, [*TABLES, *_PUBLISHED])
    own = TABLES[name]
    title = f"{own.title[0].upper()}{own.title[1:]} ({scores(own)})."
    trained = _trained(name, results)
    if scales := _scales(trained):
        title += f" Scaled down means: {scales}."
    bases = set(filter(None, (_base(row, results) for row in trained)))
    if len(bases) == 1:  # else rows have names that say it
        title += f" The default is {bases.pop()} initialization."
    return f"{paragraph(title, '', _WIDTH)}\n\n{table(trained, results)}"


def _types() -> str:
    """List the types of each family, and the fields of config.json that decide what they do."""
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for kind, row in MODEL_TYPES.items():
        alike[zoo.name_of(row.family.rules), _deciding(row)].append(f"`{kind}`")
    rows = [(f"`zoo.{family}`", ", ".join(x), fields) for (family, fields), x in alike.items()]
    lines = [("family", "types", "what decides, and its default"), ["---"] * 3, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _deciding(row: ModelType) -> str:
    """List the fields that a type reads with their defaults, and what no field says."""

    def text(value: Any) -> str:
        return f"{value:,.9g}" if isinstance(value, float) else f"{value}".lower()

    fields = [f"`{name}` {text(value)}" for name, value in row.fields.items()]
    always = {"biases of query and key": row.biases, "embedding times √D": row.embedding}
    return ", ".join([*fields, *(what for what, holds in always.items() if holds)])


def close(name: str, results: ResultStore) -> pathlib.Path:
    """Write a table as it stands to results/closed, with how it was trained.

    Then its results and its rows can go: history keeps both, at this commit.
    """
    every = [results.of(row) for row in _trained(name, results)]
    records = [record for of_row in every for record in of_row.records]
    if not records:
        raise InputError(f"{name} has no results: there is nothing to close")
    devices = Counter(f"{run.devices} {run.device_kind}, jax {run.jax}" for run in records)
    commits = Counter((run.commit or "unknown")[:8] for run in records)
    commands = dict.fromkeys(command for of_row in every for command in of_row.commands)
    about = [
        *(f"Command: `{command}`" for command in commands),
        f"Records: {len(records)}, in results/{name} at commit {(commit() or 'COMMIT')[:8]}",
        f"Hardware: {_counted(devices)}",
        f"Commits: {_counted(commits)}",
        *(f"{arm}: {text}" for of_row in every for arm, text in of_row.remarks.items()),
    ]
    if doubt := TABLES[name].doubt:
        about.append(f"Doubt: {doubt}")
    path = CLOSED / f"{name}.md"
    text = "\n".join(paragraph(f"- {line}", width=_WIDTH) for line in about)
    page = block(name, results)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"# {name}\n\nClosed: trained, shown as it stands, and not trained by today's code.\n\n"
        f"{text}\n\n---\n\n{page}\n",
        encoding="utf-8",
    )
    return path


def _counted(counts: Counter[str]) -> str:
    return "; ".join(f"{text} ({count})" for text, count in counts.items())


def _base(row: Row, results: ResultStore) -> str:
    """Name the initialization of a row's default arm; empty if nothing was trained."""
    if not (reached := results.compared_arms(row)):
        return ""
    arm = arms_of(load(row))[DEFAULT if DEFAULT in reached else next(iter(reached))]
    return _STARTS.get(arm.model.get("base", ""), "")


def scores(own: Table) -> str:
    """Name the units of a table's numbers."""
    return " or ".join(dict.fromkeys(row.score for row in own.rows))


def _trained(name: str, results: ResultStore) -> list[Row]:
    """List the rows of a table, and those that were trained scaled down."""
    return [*rows_of(name), *(row for row in rows_of(name, small=True) if results.of(row).records)]


def _scales(rows: Iterable[Row]) -> str:
    """Say how rows of a table that were trained were scaled down, and which if not all alike."""
    forms = defaultdict[str, list[str]](list)
    for row in rows:
        if row.place.is_small and (form := row.small):
            says = f"{form.says} ({form.apart})" if form.apart else form.says
            forms[says].append(str(row.place.number))
    if len(forms) < 2:
        return "".join(forms)
    return "; ".join(f"row {', '.join(numbers)}: {says}" for says, numbers in forms.items())


def _published(paper: str, results: ResultStore) -> str:
    """Show what each row of a paper prints, beside ours: as printed, else scaled down."""
    lines: list[Sequence[str]] = []
    said: list[str] = []
    rows: list[Row] = []
    bases = dict[str, None]()
    for name, own in TABLES.items():
        if name.partition("/")[0] != paper or not any(x.published or x.others for x in own.rows):
            continue
        lines.append((f"**{name.partition('/')[2]}: {own.title}, {own.score}**",))
        best: dict[int, Row] = {}
        for row in _trained(name, results):  # those as printed come first
            if row.place.number not in best or not results.of(best[row.place.number]).records:
                best[row.place.number] = row
        if scales := _scales(best.values()):
            said.append(f"Scaled down in {name.partition('/')[2]} means: {scales}.")
        rows += best.values()
        for row in best.values():
            lines += side_by_side(row, results)
            if base := _base(row, results):
                bases[base] = None
    if never := [row for row in rows if not (row.is_untrained or results.of(row).records)]:
        said.append(f"Not trained by today's code, in any size: {_listed(never)}.")
    if bases:
        said.append(f"The default is {' or '.join(bases)} initialization.")
    said += filter(None, [remarks(rows, results)])
    table = markdown(trimmed(HEAD, lines))
    return "\n".join([table, "", *said] if said else [table])


def _listed(rows: Iterable[Row]) -> str:
    """List rows by the name of their table: "table1 1, 3; table2 1"."""
    numbers = defaultdict[str, list[str]](list)
    for row in rows:
        numbers[row.place.table.partition("/")[2]].append(str(row.place.number))
    return "; ".join(f"{table} {', '.join(of)}" for table, of in numbers.items())
