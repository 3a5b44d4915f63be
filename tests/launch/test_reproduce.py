"""The registry's rows: how they are trained, recorded, and shown beside the published numbers."""

import dataclasses
import doctest
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal

import jax
import numpy as np
import pytest
import scipy.stats

import papers
from configs import cifar10_vit
from launch import draw, listing, reproduce, results, runner, tables
from launch.results import ResultStore, file_name
from launch.runner import RowRunner, load
from mimetic_jax.base.errors import InputError
from mimetic_jax.train import arm as arms
from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.rates import Ladder, trial_name
from mimetic_jax.train.record import Record
from mimetic_jax.train.store.files import path_of
from papers import record
from papers.record import File, Row, Small, Source, Table
from tests.launch import tiny
from tests.typical import typical

ROOT = pathlib.Path(__file__).parents[2]
PATHS = ("workdir", "results", "file", "data_dir")
PUBLISHED = {"default": 80.0, "mimetic": 82.5}
TABLE = Table(
    "tiny",
    tiny,
    (
        Row("width 16", {"width": 16, "steps": 8}, PUBLISHED),
        Row("width 32", {"width": 32, "steps": 8}),
    ),
    small=Small(times={"width": 0.5, "steps": 0.5}, says="half of everything"),
    seeds=(0, 1, 2),
)
FROM_A_FILE = {"steps": 4, "teacher": File("a file of a ViT")}
STARTED = Table(
    "started",
    tiny,
    (
        Row("from a file", FROM_A_FILE, {"started": 81.0}),
        Row("of another software", others={"not trained here": 82.0}),
    ),
    controls=(),
)


@pytest.fixture(scope="module", autouse=True)
def a_table_of_ours(programs):
    """And one trace of each program for all runs."""
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        patched.setitem(papers.TABLES, "tests/tiny", TABLE.named("tests/tiny"))
        patched.setattr(arms, "Program", programs)
        yield


@pytest.mark.parametrize("module", [record, reproduce, results, runner, tables])
def test_doctests(module):
    assert doctest.testmod(module).failed == 0


# What a row trains


def test_a_scaled_row_is_another_comparison():
    full, small = (row("tests/tiny", 1, s)[0] for s in (False, True))
    assert small.arguments == {"width": 8, "steps": 4}
    assert file_name(full) != file_name(small)


def test_rows_with_long_labels_have_files_of_their_own():
    fields = "optimizer.warmup=100 model.width=192 model.depth=12 data.length=512 learning_rate={}"
    labels = (fields.format(rate) for rate in ("4e-3", "8e-3"))
    alike = [dataclasses.replace(climbing(), label=label) for label in labels]
    assert len(set(map(file_name, alike))) == 2
    assert all(len(file_name(entry)) <= 80 for entry in alike)


def row(name, number, small=False):
    """A row of a table, in a list."""
    return [papers.rows_of(name, small)[number - 1]]


def ended(call):
    """The exit code of a command."""
    try:
        return reproduce.main(call)
    except SystemExit as error:
        return error.code


def mistake(capsys, *call):
    """The error of a command that can't be carried out."""
    assert ended(call) == 2
    return capsys.readouterr().err


# Training


class Call:
    """Training the tiny table's first row in a folder; may be interrupted by a line."""

    def __init__(self, folder, entries=None, seeds=(0,), only=("default", "mimetic"), **more):
        self.folder, self.said = folder, []
        self.results = ResultStore(folder / "results")
        entries = row("tests/tiny", 1) if entries is None else entries
        options = {"seeds": seeds, "only": only, "command": "a command", "say": self.say, **more}
        self.runner = RowRunner(entries, self.results, path_of(folder / "runs"), **options)

    def say(self, line):
        self.said.append(line)
        if self.stop and sum(self.stop in said for said in self.said) == self.after:
            self.stopped()

    stop = ""

    def train(self):
        with preemption.listening():
            self.runner.train(self.runner.jobs())
        return dict(self.runner.failures)

    @property
    def path(self):
        return self.folder / "results" / "tests" / "tiny" / "width_16.jsonl"

    @property
    def header(self):
        return json.loads(self.path.read_text().splitlines()[0])

    @property
    def records(self):
        return [json.loads(line) for line in self.path.read_text().splitlines()[1:]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    call = Call(tmp_path_factory.mktemp("queue"), seeds=(0, 1))
    assert call.train() == {}
    return call


@pytest.mark.slow
def test_runs_that_train_together_are_one_job_and_a_record_each(tmp_path):
    """They are trained once, found again by whoever asks, and drawn from their weights."""
    (entry,) = row("tests/tiny", 1)
    entry = dataclasses.replace(entry, arguments={}, fields={"together": 2, "steps": 2})

    def call(seeds=(0, 1)):
        return Call(tmp_path, [entry], seeds, only=("default",))

    first = call()
    assert first.train() == {}
    assert [record["seed"] for record in first.records] == [0, 1]
    assert call().runner.jobs() == []
    assert [job.seeds for job in call((0, 1, 2)).runner.jobs()] == [(2,)]
    shutil.rmtree(tmp_path / "results")
    again = call()
    assert again.train() == {}  # what is finished is collected
    assert again.runner.jobs() == []
    drawn = list(draw._of_arms(tmp_path / "figure", again.runner, [entry]))
    assert [path.suffix for path in drawn] == [".png", ".csv"]


def test_results_have_runs_with_their_scores_and_origins(finished):
    assert finished.header == {
        **{"table": "tests/tiny", "row": "width 16", "small": False},
        **{"recipe": "tiny:width=16,steps=8", "commands": ["a command"], "remarks": {}},
    }
    ran = [(record["arm"], record["seed"]) for record in finished.records]
    assert ran == [("default", 0), ("mimetic", 0), ("default", 1), ("mimetic", 1)]
    for line in finished.records:
        assert (line["steps"], line["score"], line["examples"]) == (8, "accuracy", 360)
        assert [step for step, _ in line["curve"]] == [0, 4, 8]
        assert line["curve"][-1][1] == line["value"]
        assert line["device_kind"] == jax.devices()[0].device_kind
        assert (line["devices"], line["jax"]) == (jax.device_count(), jax.__version__)
        assert line["commit"] is None or re.fullmatch(r"[0-9a-f]{40}(-dirty)?", line["commit"])


def test_finished_runs_of_another_configuration_are_not_collected(finished, tmp_path):
    shutil.copytree(finished.folder / "runs", tmp_path / "runs")
    (config,) = (tmp_path / "runs").glob("*/*/config.json")
    text = config.read_text()
    record = json.loads(text)
    record["config"]["batch"] = 64
    config.write_text(json.dumps(record))
    call = Call(tmp_path)
    (failure,) = call.train()
    assert "belongs to a different config (batch is 64 there and 128 here)" in failure
    assert not (tmp_path / "results").exists()
    config.write_text(text)
    call = Call(tmp_path)
    assert call.train() == {}
    assert len(call.records) == 2
    assert sum("finished before" in line for line in call.said) == 2


def test_results_on_other_data_are_not_added_to(finished, tmp_path):
    shutil.copytree(finished.folder / "results", tmp_path / "results")
    path = Call(tmp_path).path
    text = re.sub('"data": "[0-9a-f]*"', '"data": "x"', finished.path.read_text())
    path.write_text(text)
    (failure,) = Call(tmp_path, seeds=(2,), only=["default"]).train()
    assert "arm default was trained with other data (fingerprint x there" in failure
    assert path.read_text() == text


def without_clock(record):
    return {name: value for name, value in record.items() if name != "seconds"}


def interrupt():
    raise KeyboardInterrupt


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


# The second run's last steps, before its test.
@typical(
    ("stop", "after", "stopped", "raised"),
    [("     4/8  test", 1, terminate, preemption.Preempted)],
    slow=[("     8/8  loss", 2, interrupt, KeyboardInterrupt)],
)
def test_stopped_anywhere_and_continued_it_gives_the_same_records(
    stop, after, stopped, raised, finished, tmp_path
):
    call = Call(tmp_path)
    call.stop, call.after, call.stopped = stop, after, stopped
    with pytest.raises(raised):
        call.train()
    collected = call.records if after > 1 else []  # what was finished is there already
    assert [record["arm"] for record in collected] == ["default"] * (after - 1)
    assert call.path.exists() == bool(collected)
    again = Call(tmp_path)
    assert again.train() == {}
    assert sum("continues at step 4" in line for line in again.said) == 1
    expected = list(map(without_clock, finished.records[:2]))
    assert list(map(without_clock, again.records)) == expected


def test_missing_data_stops_its_rows_and_no_others(tmp_path):
    (ours,) = row("tests/tiny", 1)
    theirs, wider = (
        Row(f"{width}", {"width": width, "depth": 1}, arms=("default",), config=cifar10_vit)
        for width in (12, 24)
    )
    call = Call(tmp_path, [theirs, wider, ours], only=("default",))
    ((reason, names),) = call.train().items()
    assert reason.startswith("cifar10 needs the folder")
    assert names == ["12", "24"]
    assert sum(reason in line for line in call.said) == 1
    assert [record["arm"] for record in call.records] == ["default"]


def test_what_the_results_have_is_counted(capsys, tmp_path):
    write(tmp_path / "r", {"default": [80.0, 81.0, 82.0], "mimetic": [84.0]})
    call = ["tests/tiny", "--row=1", "--dry-run", f"--results={tmp_path}/r"]
    assert ended(call) == 0
    said = capsys.readouterr().out
    assert f"1 of 3 arms are from {tmp_path}/r/; --results=DIR trains" in said
    assert "tests/tiny, width 16: mimetic, seeds 1, 2\n" in said
    assert ended([*call, "--arms=mimetic", "--seeds=7"]) == 0
    assert " are from " not in capsys.readouterr().out


# Rates of their own


LADDER = Ladder((2e-3, 4e-3), trials=(100, 101))


def climbing(ladder=LADDER):
    """A complete row whose arms choose their rate."""
    (entry,) = row("tests/tiny", 1)
    return dataclasses.replace(entry, ladder=ladder, arms=("default", "mimetic"), seeds=(0,))


@dataclasses.dataclass
class Ended:
    """A run that has ended with a score."""

    arm: str
    seed: int
    value: float

    def record(self):
        return Record(arm=self.arm, seed=self.seed, score="accuracy", value=self.value)


def add(store, entry, arm, scores, seeds=None):
    """Records of seeds, those of the row unless given, with scores."""
    runs = [Ended(arm, *pair) for pair in zip(seeds or entry.seeds, scores, strict=True)]
    store.collect(entry, runs, "a command")


def add_trials(store, entry, arm, rate, *scores):
    add(store, entry, trial_name(arm, rate), scores, entry.ladder.trials)


def untried(store, entry, arm):
    return store.search(entry, [arm]).untried(arm)


def test_an_arm_climbs_until_its_best_lies_between_two_worse_ones(tmp_path):
    store, entry = ResultStore(tmp_path), climbing()
    assert untried(store, entry, "mimetic") == [2e-3, 4e-3]
    for rate, score in ((2e-3, 80.0), (4e-3, 70.0)):
        assert "mimetic" not in store.choices(entry)
        add_trials(store, entry, "mimetic", rate, score, score + 1)
    assert untried(store, entry, "mimetic") == [1e-3]
    assert store.choices(entry)["mimetic"] == (2e-3, True)
    add_trials(store, entry, "mimetic", 1e-3, 79.0, 79.0)
    assert untried(store, entry, "mimetic") == []
    assert store.choices(entry) == {"mimetic": (2e-3, False)}
    # What is compared has seeds of its own, at that rate.
    assert not store.compared_arms(entry)
    assert store.missing(entry, "mimetic", (0,)) == (0,)
    add(store, entry, "mimetic", [83.0])
    assert store.missing(entry, "mimetic", (0, 1)) == (1,)
    assert store.compared_arms(entry)["mimetic"].reached == {0: 83.0}
    assert "| 2e-3    | 83.00 (1)" in tables.table([entry], store)


def test_at_the_end_of_a_ladder_the_best_is_marked(tmp_path):
    store, entry = ResultStore(tmp_path), climbing()
    for rate, score in ((2e-3, 80.0), (4e-3, 81.0), (8e-3, 82.0), (1.6e-2, 83.0)):
        add_trials(store, entry, "default", rate, score, score)
    assert untried(store, entry, "default") == []
    add(store, entry, "default", [85.0])
    assert "| 1.6e-2† | 85.00 (1)" in tables.table([entry], store)


def test_the_arms_of_a_ladder_are_its_jobs(tmp_path):
    call = RowRunner([climbing()], ResultStore(tmp_path), tmp_path, seeds=(5, 6))
    assert [(job.arm, job.seeds) for job in call.jobs()] == [
        ("default", (5, 6)),
        ("mimetic", (5, 6)),
    ]
    assert [job.arm for job in call.jobs(1, 2)] == ["mimetic"]


@pytest.mark.parametrize("changed", [{"fields": {"batch": 64}}, {"ladder": Ladder((4e-3, 8e-3))}])
def test_results_of_another_recipe_are_not_added_to(changed, tmp_path):
    """A ladder is part of it: nothing else says at which rate an arm was trained."""
    store, entry = ResultStore(tmp_path), climbing()
    add(store, entry, "default", [80.0])
    path, entry = store.path(entry), dataclasses.replace(entry, **changed)
    text = path.read_text()
    call = RowRunner([entry], store, tmp_path, only=["default"], say=lambda line: None)
    call.train(call.jobs())
    (reason,) = call.failures
    assert reason.startswith("its results were trained as tiny:width=16,steps=8 --rates=0.002,0.0")
    assert reason.endswith(f"now: give it another label, or delete {path}")
    assert path.read_text() == text


def test_a_longer_training_takes_the_rates_of_another_row(tmp_path):
    """It has no trials of its own, and trains nothing before those of that row are there."""
    tried = climbing()
    longer = dataclasses.replace(
        tried, label="longer", source=Source(*tried.key[:2], rates_alone=True)
    )
    (reason,) = Call(tmp_path, [longer], only=["default"]).train()
    assert reason == "its rate is chosen by trials of tests/tiny, width 16: train these first"
    call = Call(tmp_path, [longer], only=["default"])
    for rate, score in ((1e-3, 79.0), (2e-3, 80.0), (4e-3, 70.0)):
        add_trials(call.results, tried, "default", rate, score, score)
    assert call.train() == {}
    (line,) = call.results.of(longer).records
    assert (line.arm, line.seed, line.train_examples) == ("default", 0, 1437)
    assert any("learning rates: default 2e-3" in said for said in call.said)
    assert call.results.choices(longer) == {"default": (2e-3, False)}
    assert call.results.compared_arms(longer)["default"].reached == {0: line.value}


@pytest.mark.slow
def test_a_ladder_is_climbed_in_one_call_and_not_again(tmp_path):
    """A loss that ceases to be finite is the worst, not a failure."""
    entry = climbing(Ladder((1e-3, 1e30), trials=(100, 101)))
    said = []

    def call(only=("default",)):
        store = ResultStore(tmp_path / "r")
        return RowRunner([entry], store, path_of(tmp_path / "w"), only=only, say=said.append)

    first = call()
    first.train(first.jobs())
    assert not first.failures
    trials = {(f"default-{x}", 100 + i) for x in ("1e-36", "1e-3", "1e30") for i in (0, 1)}
    records = {(record.arm, record.seed): record for record in first.results.of(entry).records}
    assert records.keys() == {*trials, ("default", 0)}
    diverged = {arm for (arm, _), record in records.items() if record.diverged}
    assert diverged == {"default-1e30"}
    trained = {record.train_examples for record in records.values() if not record.diverged}
    assert trained == {1150, 1437}  # trials hold images out
    assert call().jobs() == []
    # Trials whose records are lost are found in the workdir, and not trained again.
    shutil.rmtree(tmp_path / "r")
    again = call()
    said.clear()
    again.train(again.jobs())
    assert {(x.arm, x.seed) for x in again.results.of(entry).records} == records.keys()
    assert not any("starts" in line for line in said)
    both = call(("default", "mimetic"))
    assert [job.arm for job in both.jobs()] == ["mimetic"]
    both.train(both.jobs())
    assert not both.failures
    assert {"default", "mimetic"} < {record.arm for record in both.results.of(entry).records}


def test_a_seed_that_chooses_rates_is_not_compared(tmp_path):
    with pytest.raises(InputError, match="tests/tiny row 1 chooses its rates by seed 101"):
        RowRunner([climbing()], ResultStore(tmp_path), tmp_path, seeds=(0, 101))


# Weights that runs start from


@pytest.fixture
def rows_that_start(monkeypatch):
    monkeypatch.setitem(papers.TABLES, "tests/started", STARTED.named("tests/started"))


def vit_file(path, seed=0):
    """Attention of a ViT in vit_jax's names."""
    draw = np.random.default_rng(seed).normal
    block = "Transformer/encoderblock_0/MultiHeadDotProductAttention_1"
    tensors = {"embedding/kernel": draw(size=(1, 1, 3, 16))}
    tensors["Transformer/posembed_input/pos_embedding"] = draw(size=(1, 5, 16))
    for role in ("query", "key", "value", "out"):
        shape = (2, 8, 16) if role == "out" else (16, 2, 8)
        tensors[f"{block}/{role}/kernel"] = draw(size=shape)
        tensors[f"{block}/{role}/bias"] = np.zeros(shape[1:] if role != "out" else 16)
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **{name: array.astype(np.float32) for name, array in tensors.items()})
    return path


def started(folder, number, path, seeds=(0,)):
    return Call(folder, row("tests/started", number), seeds, only=(), file=str(path))


def test_a_row_starts_from_the_content_of_a_file(rows_that_start, tmp_path):
    file = vit_file(tmp_path / "vit.npz")
    call = started(tmp_path, 1, file)
    assert call.train() == {}
    assert any(re.search(r"starts from \d+ of .*vit\.npz$", line) for line in call.said)
    path = tmp_path / "results" / "tests" / "started" / "from_a_file.jsonl"
    header, line = map(json.loads, path.read_text().splitlines())
    assert line["source"] == hashlib.sha256(file.read_bytes()).hexdigest()[:12]
    assert header["recipe"] == "tiny:steps=4,teacher=FILE.npz"
    assert str(tmp_path) not in path.read_text()
    # Its table, and the document of all, need no file.
    (shown,) = cells(tables.table(row("tests/started", 1), call.results))[2:]
    assert shown == ["1. from a file", "started", "81.00", f"{line['value']:.2f} (1)"]


def test_a_row_that_is_not_trained_here_has_its_published_score_alone(rows_that_start, tmp_path):
    call = Call(tmp_path, row("tests/started", 2), (0,), only=())
    assert call.train() == {}
    assert call.said == ["tests/started row 2 is left out: it isn't trained here"]
    (shown,) = cells(tables.table(row("tests/started", 2), call.results))[2:]
    assert shown == ["2. of another software", "not trained here", "82.00"]
    *_, listed = listing.rows("tests/started", call.results)
    assert listed == "   2 of another software: not trained here 82; not run"


@pytest.mark.parametrize(
    ("call", "file", "words"),
    [
        (["tests/tiny", "--row=1"], "vit.npz", "vit.npz: tests/tiny needs no file"),
        (["tests/started", "--row=1"], "no.npz", "there is no file or folder /"),
        (["tests/started", "--row=2"], "vit.npz", "tests/started needs no file"),
    ],
)
def test_weights_that_do_not_serve_are_one_line(
    call, file, words, rows_that_start, capsys, tmp_path
):
    (tmp_path / "vit.npz").touch()
    folders = [f"--workdir={tmp_path}/w", f"--results={tmp_path}/r"]
    assert words in mistake(capsys, *call, f"--file={tmp_path / file}", *folders)


# Clusters


def test_shares_are_disjoint_whatever_is_done(finished):
    """A process that comes later, or comes back, gets the runs that it would have got at first."""
    before = Call(finished.folder / "nothing", seeds=(0, 1), only=()).runner
    after = Call(finished.folder, seeds=(0, 1), only=()).runner
    done = [job for job in before.jobs() if job not in after.jobs()]
    assert [job.arm for job in done] == ["default", "mimetic"]
    for share in range(2):
        expected = [job for job in before.jobs(share, 2) if job not in done]
        assert after.jobs(share, 2) == expected
    shared = [job for share in range(2) for job in before.jobs(share, 2)]
    assert sorted(map(str, shared)) == sorted(map(str, before.jobs()))


# Results


def test_damaged_results_are_named_and_nothing_is_overwritten(finished, tmp_path, capsys):
    path = tmp_path / "tests" / "tiny" / "width_16.jsonl"
    path.parent.mkdir(parents=True)
    lines = finished.path.read_text().splitlines()
    named = lines[0].replace("width 16", "width 17")
    call = ["tests/tiny", "--row=1", f"--results={tmp_path}", f"--workdir={tmp_path}/w"]
    for damaged, words in (
        ([lines[0], "<<<<<<<"], r"width_16\.jsonl line 2 is not a JSON object"),
        ([lines[0], '{"seed": 0}'], r"width_16\.jsonl line 2 has no \w+"),
        ([named, *lines[1:]], r"width_16\.jsonl is of tests/tiny, width 17: move it back"),
        ([*lines, lines[1]], r"width_16\.jsonl has arm default seed 0 twice: delete one"),
    ):
        path.write_text(text := "\n".join(damaged) + "\n")
        assert re.search(words, mistake(capsys, *call))
        assert path.read_text() == text
    assert not (tmp_path / "w").exists()


# Side by side


def write(folder, scores, small=False):
    """Lines of the tiny table's first row."""
    (entry,) = row("tests/tiny", 1, small)
    store = ResultStore(folder)
    for arm, values in scores.items():
        add(store, entry, arm, values, seeds=range(len(values)))
    return entry, ResultStore(folder)


def cells(text):
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


ARMS = ("default", "norm_matched_mimetic", "mimetic")


def test_published_and_ours_with_their_differences(tmp_path):
    scores = ([80, 81, 82], [81, 81, 86], [84, 84, 87])
    entry, found = write(tmp_path, dict(zip(ARMS, scores, strict=True)))
    head, _, mimetic, default, matched, *rest = cells(tables.table([entry], found))
    assert head == [
        *("row", "arm", "published", "ours ± sd (n)"),
        *("Δ default [95% CI]", "Δ norm-matched [95% CI]", "verdict"),
    ]
    assert default[1:4] == ["default", "", "81.00 ± 1.00 (3)"]
    assert mimetic[:4] == ["1. width 16", "mimetic", "80.00 → 82.50", "85.00 ± 1.73 (3)"]
    # The arms' spreads differ by the test: each difference has that of its own pairs.
    low, high = scipy.stats.t.interval(0.95, 2, 4, np.std([4, 3, 5], ddof=1) / 3**0.5)
    assert mimetic[4] == f"+4.00 [{low:+.2f}, {high:+.2f}]"
    assert mimetic[6] == "improvement; not over controls"
    assert matched[1:4] == ["norm_matched_mimetic", "", "82.67 ± 2.89 (3)"]
    assert rest == []
    own = "Intervals by each pair's own spread, as Brown–Forsythe p < 0.5: row 1 (0.354)."
    assert tables.remarks([entry], found) == f"{own} One learning rate for all arms: row 1."


def test_scaled_rows_are_named_and_those_without_runs_keep_their_published_numbers(tmp_path):
    entry, found = write(tmp_path, {"default": [50.0]}, small=True)
    assert "1. width 16, scaled down" in tables.table([entry], found)
    shown = tables.table(papers.rows_of("tests/tiny"), found)  # without runs
    assert cells(shown)[2:] == [["1. width 16", "mimetic", "80.00 → 82.50"]]


def test_a_score_of_the_best_of_several_arms_is_beside_none_of_ours(tmp_path):
    """The best of ours would be better by chance."""
    entry, found = write(tmp_path, {"default": [80.0], "mimetic": [85.0]})
    entry = dataclasses.replace(entry, published={}, others={"best of 2": 89.9})
    rows = cells(tables.table([entry], found))
    assert [row[1:4] for row in rows[2:]] == [
        ["default", "", "80.00 (1)"],
        ["mimetic", "", "85.00 (1)"],
        ["best of 2", "89.90", ""],
    ]


# The documents and the command line


def test_the_list_has_every_row_and_number(monkeypatch, tmp_path):
    monkeypatch.delitem(papers.TABLES, "tests/tiny")
    nothing = ResultStore(tmp_path)
    lines = list(listing.tables_and_figures(nothing))
    assert len(lines) == len(papers.TABLES) + len(papers.FIGURES) + 2 * len(papers.PAPERS)
    text = "\n".join(lines)
    for name, table in papers.TABLES.items():
        assert table.title in text
        listed = list(listing.rows(name, nothing))
        assert table.title in listed[0]
        rows, sizes = listed[1 : 1 + len(table.rows)], "\n".join(listed[1 + len(table.rows) :])
        for row, line in zip(table.rows, rows, strict=True):
            assert f" {row.label}: " in line
            assert row.doubt in line
        assert table.doubt in listed[-1]
        assert {row.small.says for row in papers.rows_of(name, small=True)} == set(
            re.findall(r"^  --small, rows? [\d, ]+: (.*)$", sizes, re.MULTILINE)
        )
    text = "\n".join(listing.rows("attention/table1", nothing))
    assert "96/6/3: default 84.75, mimetic 87.9; not run" in text


def states(folder):
    """What the list says of the tiny rows, without numbers."""
    lines = listing.rows("tests/tiny", ResultStore(folder))
    return [re.search(r"; (.*)|: (no number.*)", line)[0] for line in lines if " width " in line]


def test_the_list_has_the_state_of_each_row(tmp_path):
    state = functools.partial(states, tmp_path / "results")
    assert state() == ["; not run", ": no number; not run"]

    every = {arm: [1.0, 2.0, 3.0] for arm in ARMS}
    write(tmp_path / "results", {"default": [1.0, 2.0], "mimetic": [1.0]})
    assert state()[0] == "; 3 of 9 runs"
    write(tmp_path / "results", every, small=True)
    assert state()[0] == "; 3 of 9 runs; small: 3 seeds"
    write(tmp_path / "results", every)
    assert state()[0] == "; done, 3 seeds; small: 3 seeds"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (["attention/tabel1"], "did you mean 'attention/table1'"),
        (["attention/table1", "--row=1", "--row=b"], "--row=b: attention/table1 has rows 1, 2, 3"),
        (["attention/table1", "--row=1", "--row=11"], "--row=11: attention/table1 has rows"),
        (["attention", "--row=1"], "--row=1 is for one table"),
        (["attention/table3", "--small"], "attention/table3 has no form that a CPU trains"),
        (["attention/figure3", "--small"], "attention/figure3 has no form that a CPU trains"),
        (["tests/tiny", "--seeds=1,1"], "--seeds=1,1 names a seed twice"),
        *((["tests/tiny", f"--{x}="], f"--{x} is empty; pass a path") for x in PATHS),
        (["tests/tiny", "--results=gs://b/r"], "results are files of this machine"),
        (["tests/tiny", "--arms=mimetik"], "did you mean 'mimetic'"),
        (["tests/tiny", "--share=8/8"], "--share=8/8 is not a share such as 0/8 or 7/8"),
        (["configs/digits_vit.py"], "unknown paper, table or figure 'configs/digits_vit.py'"),
    ],
)
def test_bad_input_is_one_line(call, words, capsys, tmp_path):
    error = mistake(capsys, f"--workdir={tmp_path}/w", f"--results={tmp_path}/r", *call)
    assert error.startswith("error: ")
    assert words in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_rows_of_a_table_may_be_several(capsys, tmp_path):
    call = ["tests/tiny", *("--row=2", "--row=1", "--row=2"), "--dry-run", "--arms=default"]
    folders = [f"--workdir={tmp_path}/w", f"--results={tmp_path}/r"]
    assert ended([*call, "--seeds=0", *folders]) == 0
    assert re.findall("width (..): default", capsys.readouterr().out) == ["32", "16"]


def test_a_dry_run_lists_what_is_left_and_writes_nothing(tmp_path, capsys):
    folders = [f"--workdir={tmp_path}/w", f"--results={tmp_path}/r"]
    call = ["tests/tiny", *("--row=1", "--row=2"), "--arms=default", "--seeds=0", *folders]
    assert ended([*call, "--dry-run", "--share=1/2"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "tests/tiny, width 32: default, seed 0"
    assert not list(tmp_path.iterdir())


def test_a_workdir_in_a_bucket_keeps_its_scheme():
    pytest.importorskip("gcsfs")
    flags = reproduce.parse(["--workdir=gs://bucket/runs"])
    call = RowRunner([], ResultStore("results"), flags.workdir)
    assert str(call.folder(*row("tests/tiny", 1))) == "gs://bucket/runs/tests_tiny/width_16"


def test_elsewhere_than_at_the_root_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = "error: run this from the root of the repository: there is no main.py here\n"
    assert mistake(capsys, "tests/tiny") == said


# Figures


def test_a_figure_of_formulas_takes_no_training(tmp_path, capsys):
    assert ended(["attention/figure3", f"--results={tmp_path}"]) == 0
    drawn = tmp_path / "figures" / "attention_figure3"
    assert f"drawn: {drawn}.png" in capsys.readouterr().out
    assert drawn.with_suffix(".csv").exists()


def test_a_scaled_figure_of_starts_is_of_a_scaled_network(monkeypatch):
    small = Small(times={"width": 0.5}, fields={"model.depth": 2})
    start = Row("", {"width": 16}, arms=("default", "mimetic"), config=tiny)
    figure = record.Figure("maps", "impulse_maps", small=small, starts=(start,))
    monkeypatch.setitem(papers.FIGURES, "tests/figure", figure.named("tests/figure"))
    config = load(*papers.starts_of("tests/figure", small=True))
    assert (config.model.width, config.model.depth) == (8, 2)
    assert list(config.arms) == ["default", "mimetic"]


def test_a_figure_of_pretrained_weights_takes_a_file(tmp_path, capsys):
    options = [f"--results={tmp_path}", f"--workdir={tmp_path}/w"]
    figure = ["attention/figure7", *options]
    assert "attention/figure7 needs a file" in mistake(capsys, *figure)
    file = tmp_path / "gpt2.npz"
    draws = np.random.default_rng(0)
    shapes = {"h.0.attn.c_attn.weight": (96, 288), "h.0.attn.c_proj.weight": (96, 96)}
    np.savez(file, **{name: draws.normal(size=shape) for name, shape in shapes.items()})
    assert "num_heads" in mistake(capsys, *figure, f"--file={file}")
    assert ended([*figure, f"--file={file}", "--heads=6"]) == 0  # not that of the paper's figure
    lines = (tmp_path / "figures" / "attention_figure7.csv").read_text().splitlines()
    drawn = [line.split(",") for line in lines[1:]]
    assert {int(line[3]) for line in drawn if line[1] == "query_key"} == {*range(1, 7)}
    found = mistake(capsys, *figure, "--heads=6")
    assert "--heads and --kv-heads are of the --file" in found
    found = mistake(capsys, "attention/figure3", *options, f"--file={file}")
    assert "isn't drawn from the weights of a file" in found


def test_a_figure_of_runs_draws_them(finished, tmp_path, monkeypatch):
    figure = record.Figure("curves", "curves", table="tests/tiny")
    monkeypatch.setitem(papers.FIGURES, "tests/figure", figure)
    found = ResultStore(finished.folder / "results")
    (entry,) = row("tests/figure", 1)
    rows = [dataclasses.replace(entry, fields={"epochs": 2.0, "steps": 0})]
    call = RowRunner(rows, found, path_of(tmp_path), seeds=(0, 1))
    png, csv = draw.draw("tests/figure", call, tmp_path)
    with pytest.raises(InputError, match="no run of tests/figure is finished"):
        draw.draw("tests/figure", RowRunner([], found, path_of(tmp_path)), tmp_path)
    assert png.exists()
    rows = csv.read_text().splitlines()
    assert rows[0] == "row,arm,step,epoch,mean,sd,n"
    assert {",".join(row.split(",")[:4]) for row in rows[1:]} == {
        f"width 16,{arm},{when}" for arm in ("default", "mimetic") for when in ("0,0", "4,1", "8,2")
    }
