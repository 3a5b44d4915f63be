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
from launch import docs, draw, reproduce, runs
from launch import rows as registry
from launch.rows import folder, load, made
from launch.runs import Line, Results
from mimetic_jax.base.errors import InputError
from mimetic_jax.train import config as configs
from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.schema import digest
from mimetic_jax.train.store.files import Lines, path_of
from papers import record
from papers.record import Row, Small, Table
from tests.launch import tiny
from tests.typical import typical

ROOT = pathlib.Path(__file__).parents[2]
DIGITS = "configs/digits_vit.py"
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
)
STARTED = Table(
    "started",
    tiny,
    (
        Row(
            "from a file",
            {"steps": 4, "teacher": "FILE.npz"},
            {"started": 81.0},
            needs="a file of a ViT",
        ),
        Row(
            "from a run",
            {"steps": 4, "teacher": "FIRST_STAGE"},
            {"started": 82.0},
            needs="a first stage",
        ),
    ),
    controls=(),
)


@pytest.fixture(autouse=True)
def a_table_of_ours(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setitem(papers.TABLES, "tests/tiny", TABLE)


@pytest.mark.parametrize("module", [docs, record, registry, reproduce, runs])
def test_doctests(module):
    assert doctest.testmod(module).failed == 0


# What a row trains


def test_a_scaled_row_is_another_comparison():
    full, small = (row("tests/tiny", 1, s)[0] for s in (False, True))
    assert small.arguments == {"width": 8, "steps": 4}
    assert folder(full) != folder(small)


def row(name, number, small=False):
    """A row of a table, in a list."""
    return [registry.rows(name, small)[number - 1]]


def ended(call):
    """The exit code of a command."""
    try:
        return reproduce.main(call)
    except SystemExit as error:
        return error.code


def test_a_new_field_that_is_off_leaves_the_digest():
    record = configs.to_json(configs.arms_of(tiny.get_config())["mimetic"])
    off = {name for name, value in record.items() if name != "scheme" and not value}
    assert len(off) > 3
    assert digest({name: record[name] for name in record if name not in off}) == digest(record)


def mistake(capsys, *call):
    """The error of a command that can't be carried out."""
    assert ended(call) == 2
    return capsys.readouterr().err


# Training


class Call:
    """A queue of the tiny table's first row in a folder; may be interrupted by a line."""

    def __init__(self, folder, entries=None, seeds=(0,), only=("default", "mimetic")):
        self.folder, self.said = folder, []
        self.results = Results(folder / "results")
        entries = row("tests/tiny", 1) if entries is None else entries
        options = {"seeds": seeds, "only": only, "command": "a command", "say": self.say}
        self.queue = runs.Queue(entries, self.results, path_of(folder / "runs"), **options)

    def say(self, line):
        self.said.append(line)
        if self.stop and sum(self.stop in said for said in self.said) == self.after:
            self.stopped()

    stop = ""

    def train(self):
        with preemption.listening():
            return self.queue.train(self.queue.jobs())

    @property
    def lines(self):
        text = (self.folder / "results" / "tiny.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(papers.TABLES, "tests/tiny", TABLE)
        call = Call(tmp_path_factory.mktemp("queue"), seeds=(0, 1))
        assert call.train() == {}
    return call


@pytest.mark.slow
def test_runs_that_train_together_are_one_job_and_a_line_each(tmp_path):
    """They are trained once, found again by whoever asks, and drawn from their weights."""
    (entry,) = row("tests/tiny", 1)
    entry = dataclasses.replace(entry, arguments={}, fields={"together": 2, "steps": 2})

    def call(seeds=(0, 1)):
        return Call(tmp_path, [entry], seeds, only=("default",))

    first = call()
    assert first.train() == {}
    assert [line["seed"] for line in first.lines] == [0, 1]
    assert call().queue.jobs() == []
    assert [job.seed for job in call((0, 1, 2)).queue.jobs()] == [2]
    shutil.rmtree(tmp_path / "results")
    again = call()
    assert again.train() == {}  # what is finished gets its lines
    assert again.queue.jobs() == []
    drawn = list(draw._of_arms(tmp_path / "figure", again.queue, [entry]))
    assert [path.suffix for path in drawn] == [".png", ".csv"]


def test_a_line_has_the_run_its_score_and_its_origin(finished):
    ran = [(line["arm"], line["seed"]) for line in finished.lines]
    assert ran == [("default", 0), ("mimetic", 0), ("default", 1), ("mimetic", 1)]
    for line in finished.lines:
        assert line["config"] == "tiny:width=16,steps=8"
        assert (line["steps"], line["batch"], line["dtype"]) == (8, 128, "float32")
        assert (line["score"], line["examples"]) == ("accuracy", 360)
        assert [step for step, _ in line["curve"]] == [0, 4, 8]
        assert line["curve"][-1][1] == line["value"]
        assert line["command"] == "a command"
        assert line["device_kind"] == jax.devices()[0].device_kind
        assert (line["devices"], line["jax"]) == (jax.device_count(), jax.__version__)
        assert line["commit"] is None or re.fullmatch(r"[0-9a-f]{40}(-dirty)?", line["commit"])


def test_finished_runs_of_another_configuration_are_not_collected(finished, tmp_path):
    shutil.copytree(finished.folder / "runs", tmp_path / "runs")
    (config,) = (tmp_path / "runs").glob("*/config.json")
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
    assert len(call.lines) == 2
    assert sum("finished before" in line for line in call.said) == 2


def without_clock(line):
    return {name: value for name, value in line.items() if name not in ("seconds", "crc32")}


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
def test_stopped_anywhere_and_continued_it_gives_the_same_lines(
    stop, after, stopped, raised, finished, tmp_path
):
    call = Call(tmp_path)
    call.stop, call.after, call.stopped = stop, after, stopped
    with pytest.raises(raised):
        call.train()
    # And the machine went down while the first line was written.
    path, whole = tmp_path / "results" / "tiny.jsonl", after - 1
    if whole:
        path.write_text(path.read_text()[:-30])
    again = Call(tmp_path)
    assert again.train() == {}
    # The first run may be whole, only its line was torn.
    assert sum("finished before" in line for line in again.said) == whole
    assert sum("continues at step 4" in line for line in again.said) == 1
    assert [without_clock(line) for line in again.lines] == [
        without_clock(line) for line in finished.lines[:2]
    ]


def test_a_stop_between_two_trainings_of_a_table_is_not_forgotten(monkeypatch):
    asked = []

    def train(*_, **__):
        asked.append(preemption.should_stop())
        os.kill(os.getpid(), signal.SIGTERM)
        return None, False

    monkeypatch.setattr(reproduce, "train", train)
    assert reproduce.main(["questions/large"]) == 0
    assert asked == [False, True, True]  # trials, the default, the others


def test_missing_data_stops_its_rows_and_no_others(tmp_path):
    (ours,) = row("tests/tiny", 1)
    theirs, wider = (
        Row("x", {"width": width, "depth": 1}, arms=("default",), config=cifar10_vit)
        for width in (12, 24)
    )
    call = Call(tmp_path, [theirs, wider, ours], only=("default",))
    ((reason, names),) = call.train().items()
    assert reason.startswith("cifar10 needs the folder")
    assert names == ["cifar10_vit:width=12,depth=1", "cifar10_vit:width=24,depth=1"]
    assert sum(reason in line for line in call.said) == 1
    assert [line["arm"] for line in call.lines] == ["default"]


def test_runs_that_the_results_have_are_counted(capsys, tmp_path):
    write(tmp_path / "r", {"default": [80.0, 81.0], "mimetic": [84.0]})
    call = ["tests/tiny", "--row=1", "--dry-run", f"--results={tmp_path}/r"]
    assert ended(call) == 0
    assert f"3 runs are from {tmp_path}/r/; --results=DIR trains" in capsys.readouterr().out
    assert ended([*call, "--arms=mimetic", "--seeds=0"]) == 0
    assert "1 run is from" in capsys.readouterr().out
    assert ended([*call, "--arms=mimetic", "--seeds=7"]) == 0
    assert " from " not in capsys.readouterr().out


# Weights that runs start from


@pytest.fixture
def rows_that_start(monkeypatch):
    monkeypatch.setitem(papers.TABLES, "tests/started", STARTED)


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
    (entry,) = row("tests/started", number)
    return Call(folder, [entry.starting_from(str(path))], seeds, only=())


def test_a_row_starts_from_the_content_of_a_file(rows_that_start, tmp_path):
    file = vit_file(tmp_path / "a" / "vit.npz")
    call = started(tmp_path, 1, file)
    assert call.train() == {}
    assert any(re.search(r"starts from \d+ of .*vit\.npz$", line) for line in call.said)
    (line,) = call.lines
    assert line["weights"] == hashlib.sha256(file.read_bytes()).hexdigest()[:12]
    assert line["config"] == "tiny:steps=4,teacher=FILE.npz"
    assert str(tmp_path) not in json.dumps(line)
    copy = tmp_path / "copy.npz"
    shutil.copy(file, copy)
    assert started(tmp_path, 1, copy).queue.jobs() == []
    other = vit_file(tmp_path / "b" / "vit.npz", seed=1)
    (job,) = started(tmp_path, 1, other).queue.jobs()
    assert not call.queue.folder(job.row).exists()  # a workdir of its own
    # Its table, and the document of all, need no file.
    rows = row("tests/started", 1)
    (shown,) = cells(docs.table(rows, call.results))[2:]
    assert shown == ["1. from a file", "started", "81.00", f"{line['value']:.2f} (1)"]


def test_arms_that_choose_their_row_start_from_a_file(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(
        papers.TABLES, "tests/chosen", dataclasses.replace(STARTED, trials=(9,), first=(1,))
    )
    file, folder = vit_file(tmp_path / "vit.npz"), f"--results={tmp_path}/r"
    assert ended(["tests/chosen", f"--file={file}", "--dry-run", folder]) == 0
    assert "started seed 9" in capsys.readouterr().out
    assert ended(["tests/chosen", "--dry-run", folder]) == 0
    assert "row 1 is left out: it needs a file of a ViT" in capsys.readouterr().out


def test_a_row_starts_from_the_runs_of_a_first_stage(finished, rows_that_start, tmp_path):
    (stage,) = (finished.folder / "runs").iterdir()
    queue = started(tmp_path, 2, stage).queue
    ((comparison, config),) = queue.configs.items()
    assert config.arms.started.init_from == f"{stage}/runs/default/{{seed}}"
    record = json.loads((stage / "config.json").read_text())["config"]
    mark = queue._made[comparison]["started"]
    assert mark.weights == digest({**record, "arms": {}})  # its default overrides nothing

    def of_another(**changed):
        """The mark of the student of a teacher with other fields."""
        other = tmp_path / "teacher"
        shutil.rmtree(other, ignore_errors=True)
        other.mkdir()
        claim = json.loads((stage / "config.json").read_text())
        claim["config"] |= changed
        (other / "config.json").write_text(json.dumps(claim))
        registry.mark_of.cache_clear()
        again = started(tmp_path, 2, other).queue
        return next(iter(again._made.values()))["started"]

    arms = {**record["arms"], "another": {"batch": 64}}
    for same in ({"seeds": [7], "name": "x"}, {"arms": arms}):
        assert of_another(**same) == mark
    for other in ({"batch": 64}, {"arms": {**arms, "default": {"batch": 64}}}):
        assert of_another(**other).digest != mark.digest
    with pytest.raises(InputError, match=r"unknown arm in --file=.*teacher 'default'.* another"):
        of_another(arms={"another": {}})


@pytest.mark.parametrize(
    ("call", "file", "words"),
    [
        (["tests/tiny", "--row=1"], "vit.npz", "vit.npz: tests/tiny needs no file"),
        (["tests/started", "--row=1"], "no.npz", "no.npz: there is no such file"),
        (["tests/started", "--row=1"], "vit.pt", "vit.pt is none of .npz, .safetensors"),
        (["tests/started", "--row=2"], "vit.npz", "tests/started needs a first stage"),
        (["tests/started", "--row=1"], "stage", "tests/started needs a file of a ViT"),
        (["tests/started", "--row=2"], "empty", "empty: it has no config.json"),
    ],
)
def test_weights_that_do_not_serve_are_one_line(
    call, file, words, finished, rows_that_start, capsys, tmp_path
):
    for name in ("vit.npz", "vit.pt"):
        (tmp_path / name).touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "stage").symlink_to(next((finished.folder / "runs").iterdir()))
    folders = [f"--workdir={tmp_path}/w", f"--results={tmp_path}/r"]
    assert words in mistake(capsys, *call, f"--file={tmp_path / file}", *folders)


# Clusters


def test_shares_are_disjoint_whatever_is_done(finished):
    """A process that comes later, or comes back, gets the runs that it would have got at first."""
    before = Call(finished.folder / "nothing", seeds=(0, 1, 2), only=()).queue
    after = Call(finished.folder, seeds=(0, 1, 2), only=()).queue
    done = [job for job in before.jobs() if job not in after.jobs()]
    assert len(done) == 4
    for share in range(4):
        expected = [job for job in before.jobs(share, 4) if job not in done]
        assert after.jobs(share, 4) == expected
    assert sorted(str(job) for share in range(4) for job in before.jobs(share, 4)) == sorted(
        map(str, before.jobs())
    )


# Results


def test_a_damaged_line_is_named_and_nothing_is_overwritten(tmp_path, capsys):
    path = tmp_path / "tiny.jsonl"
    whole = Lines(path_of(path))
    whole.rewrite([{"config": "x"}, {"a": 3}])
    path.write_text(path.read_text().replace("\n", "\n<<<<<<<\n", 1))
    call = ["tests/tiny", f"--results={tmp_path}", f"--workdir={tmp_path}/w"]
    found = mistake(capsys, *call)
    assert re.search(r"error: .*tiny\.jsonl line 2 is not a JSON object", found)
    key = row("tests/tiny", 1)[0].key
    whole.rewrite([{"config": key, "small": False, "digest": "y", "seed": 0}])
    text = path.read_text()
    assert re.search(r"line 1 has no \w+", mistake(capsys, *call))
    assert path.read_text() == text
    assert not (tmp_path / "w").exists()


# Side by side


def write(folder, scores, digest="", small=False):
    """Lines of the tiny table's first row; of its own digests unless another is given."""
    (entry,) = row("tests/tiny", 1, small)
    found = Results(folder)
    own = made(entry, configs.arms_of(load(entry)))
    about = {"config": entry.key, "small": small, "score": "accuracy", "command": "c"}
    for arm, values in scores.items():
        for seed, value in enumerate(values):
            of_arm = {"arm": arm, **vars(own[arm]), **({"digest": digest} if digest else {})}
            found.append(entry, Line(seed=seed, value=value, **of_arm, **about))
    return entry, Results(folder)


def cells(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


ARMS = ("default", "norm_matched", "mimetic")


def test_published_and_ours_with_their_differences(tmp_path):
    scores = {"default": [80, 81, 82], "norm_matched": [81, 81, 86], "mimetic": [84, 84, 87]}
    entry, found = write(tmp_path, scores)
    head, _, mimetic, default, matched, *rest = cells(docs.table([entry], found))
    assert head == [
        *("row", "arm", "published", "ours ± sd (n)"),
        *("Δ default [95 % CI]", "Δ noise [95 % CI]", "verdict"),
    ]
    assert default[1:4] == ["default", "", "81.00 ± 1.00 (3)"]
    assert mimetic[:4] == ["1. width 16", "mimetic", "80.00 → 82.50", "85.00 ± 1.73 (3)"]
    values = np.array([*scores.values()], float)
    residual = values - values.mean(1, keepdims=True) - values.mean(0) + values.mean()
    error = np.sqrt((residual**2).sum() / 4 * 2 / 3)  # with (3 - 1) (3 - 1) degrees of freedom
    low, high = scipy.stats.t.interval(0.95, 4, 4, error)
    assert mimetic[4] == f"+4.00 [{low:+.2f}, {high:+.2f}]"
    assert mimetic[6] == "gain; structure not shown"
    assert matched[1:4] == ["norm_matched", "", "82.67 ± 2.89 (3)"]
    assert rest == []


def test_rows_without_runs_keep_their_published_numbers(tmp_path):
    rows = registry.rows("tests/tiny")
    shown = cells(docs.table(rows, Results(tmp_path)))
    assert shown[2:] == [["1. width 16", "mimetic", "80.00 → 82.50"]]


def test_seeds_of_arms_of_one_configuration_are_together(tmp_path):
    """Those of its own name come first; with the same seed those of another name don't count."""
    entry, found = write(tmp_path, {"mimetic": [84.0, 84.0, 87.0]})
    digest = made(entry, configs.arms_of(load(entry)))["mimetic"].digest
    about = {"config": entry.key, "small": False, "score": "accuracy", "digest": digest}
    for seed, value in ((2, 0.0), (3, 90.0)):
        found.append(entry, Line(seed=seed, value=value, arm="vo_40_40", **about))
    for arm, expected in (("mimetic", [84, 84, 87, 90]), ("vo_40_40", [84, 84, 0, 90])):
        runs = found.runs(entry, arm, digest)
        assert [runs[seed].value for seed in range(4)] == expected
    call = Call(tmp_path, [entry], seeds=range(4), only=("mimetic",))
    call.results = call.queue.results = found
    assert call.queue.jobs() == []


def test_runs_of_another_configuration_are_not_mixed_in(tmp_path):
    entry, found = write(tmp_path, {"default": [10.0, 10.0]}, "an older digest")
    write(tmp_path, {"default": [80.0]})
    text = docs.table([entry], Results(tmp_path))
    assert "80.00 (1)" in text
    assert len(found.of(entry)) == 2


def test_scaled_rows_are_named(tmp_path):
    entry, found = write(tmp_path, {"default": [50.0]}, small=True)
    assert "1. width 16, scaled down" in docs.table([entry], found)
    (full,) = row("tests/tiny", 1)
    assert "50.00" not in docs.table([full], found)


def test_a_score_of_the_best_of_several_arms_is_one_line(tmp_path):
    """Beside each of ours: the best of them would be better by chance."""
    arms = {"default": 89.9, "mimetic": 89.9}
    entry, found = write(tmp_path, {"default": [80.0], "mimetic": [85.0]})
    entry = dataclasses.replace(entry, label="scales", published=arms, best=True)
    rows = cells(docs.table([entry], found))
    assert [row[1:4] for row in rows[2:]] == [
        ["best of 2", "89.90", ""],
        ["default", "", "80.00 (1)"],
        ["mimetic", "", "85.00 (1)"],
    ]


# The documents and the command line


def test_the_list_has_every_row_and_number(monkeypatch, tmp_path):
    monkeypatch.delitem(papers.TABLES, "tests/tiny")
    nothing = Results(tmp_path)
    lines = list(registry.listing(nothing))
    assert len(lines) == len(papers.TABLES) + len(papers.FIGURES) + 2 * len(papers.PAPERS)
    text = "\n".join(lines)
    for name, table in papers.TABLES.items():
        assert table.title in text
        listed = list(registry.rows_listed(name, nothing))
        assert table.title in listed[0]
        for row, line in zip(table.rows, listed[1:], strict=True):
            assert f" {row.label}: " in line
    text = "\n".join(registry.rows_listed("attention/table1", nothing))
    assert "96/6/3: default 84.75, mimetic 87.9; not run" in text


def states(folder):
    """What the list says of the tiny rows, without numbers."""
    lines = registry.rows_listed("tests/tiny", Results(folder))
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
        (["attention/table1", "--row=11"], "--row=11: attention/table1 has rows 1, 2, 3"),
        (["attention/table1", "--row=1", "--row=b"], "--row=b: attention/table1 has rows 1, 2, 3"),
        (["attention/table1", "--row=1", "--row=11"], "--row=11: attention/table1 has rows"),
        (["attention", "--row=1"], "--row=1 is for one table"),
        (["attention/table3", "--small"], "attention/table3 has no form that a CPU trains"),
        (["attention/figure3", "--small"], "attention/figure3 has no form that a CPU trains"),
        (["tests/tiny", "--seeds=1,1"], "--seeds=1,1 names a seed twice"),
        *((["tests/tiny", f"--{x}="], f"--{x} is empty: give a path") for x in PATHS),
        (["tests/tiny", "--results=gs://b/r"], "lines are files of this machine"),
        (["tests/tiny", "--arms=mimetik"], "did you mean 'mimetic'"),
        ([DIGITS, "--share=8/8"], "--share=8/8 is not a share such as 0/8 or 7/8"),
        ([DIGITS, "--row=widht=1"], "did you mean 'width'"),
        ([DIGITS, "--row=width=16", "--row=width=16"], "rows must be different"),
        ([DIGITS, "--", "--config.seeds=(1,)"], "--seeds"),
        ([DIGITS, "--", "--config.btach=3"], "did you mean 'batch'"),
        ([DIGITS, "--", "--config.batch"], "--config.batch has no value: write --config.batch="),
        (["none.py"], "no config file 'none.py'"),
    ],
)
def test_bad_input_is_one_line(call, words, capsys, tmp_path):
    error = mistake(capsys, f"--workdir={tmp_path}/w", f"--results={tmp_path}/r", *call)
    assert error.startswith("error: ")
    assert words in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_config_file_that_cannot_be_read(capsys, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("def\n")
    assert "can't be read (SyntaxError" in mistake(capsys, str(path), f"--workdir={tmp_path}/x")


def test_rows_of_a_table_may_be_several(capsys, tmp_path):
    call = ["tests/tiny", *("--row=2", "--row=1", "--row=2"), "--dry-run", "--arms=default"]
    folders = [f"--workdir={tmp_path}/w", f"--results={tmp_path}/r"]
    assert ended([*call, "--seeds=0", *folders]) == 0
    assert re.findall("width=(..)", capsys.readouterr().out) == ["32", "16"]


# Rows of one's own


def own(workdir, *more):
    """A command of two rows of a config file, one arm and seed."""
    rows = [f"--row=width={width},depth=1,heads=2,steps=8" for width in (16, 32)]
    return [DIGITS, *rows, f"--workdir={workdir}", "--arms=default", "--seeds=0", *more]


def test_a_dry_run_lists_what_is_left_and_writes_nothing(tmp_path, capsys):
    assert ended(own(tmp_path / "x", "--dry-run", "--share=1/2")) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "digits_vit:width=32,depth=1,heads=2,steps=8, default seed 0"
    assert said[-1] == "no finished run yet"
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_rows_of_ones_own_from_calls_to_a_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # compiling is most of their time
    call = own(tmp_path)
    assert ended(call) == 0
    text = (tmp_path / "table.md").read_text()
    assert text in capsys.readouterr().out
    assert len(re.findall(r"\(1\)", text)) == 2
    trained = sorted(tmp_path.glob("digits_vit*/runs/*/*"))
    assert [str(path.relative_to(path.parents[1])) for path in trained] == ["default/0"] * 2
    assert ended(call) == 0
    assert "starts" not in capsys.readouterr().out


def test_a_workdir_in_a_bucket_keeps_its_scheme():
    pytest.importorskip("gcsfs")
    flags = reproduce.parse(["--workdir=gs://bucket/runs"])
    assert str(flags.workdir / folder(*row("tests/tiny", 1))).startswith("gs://bucket/runs/tiny")


def test_elsewhere_than_at_the_root_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = "error: run this from the root of the repository: there is no main.py here\n"
    assert mistake(capsys, "tests/tiny") == said


# Figures


def test_a_figure_of_formulas_takes_no_training(tmp_path, capsys):
    assert ended(["attention/equation8", f"--results={tmp_path}"]) == 0
    drawn = tmp_path / "figures" / "attention_equation8"
    assert f"drawn: {drawn}.png" in capsys.readouterr().out
    assert drawn.with_suffix(".csv").exists()


def test_a_scaled_figure_of_starts_is_of_a_scaled_network(monkeypatch):
    small = Small(times={"width": 0.5}, fields={"model.depth": 2})
    start = Row("", {"width": 16}, arms=("default", "mimetic"), config=tiny)
    figure = papers.record.Figure("maps", "impulse_maps", small=small, starts=(start,))
    monkeypatch.setitem(papers.FIGURES, "tests/figure", figure)
    config = load(*registry.rows("tests/figure", True, figure.starts))
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
    for heads in (6, 12):  # whatever the paper's figure has
        assert ended([*figure, f"--file={file}", f"--heads={heads}"]) == 0
        lines = (tmp_path / "figures" / "attention_figure7.csv").read_text().splitlines()
        drawn = [line.split(",") for line in lines[1:]]
        assert {int(line[3]) for line in drawn if line[1] == "query_key"} == {*range(1, heads + 1)}
    found = mistake(capsys, *figure, "--heads=6")
    assert "--heads and --kv-heads are of the --file" in found
    found = mistake(capsys, "attention/figure3", *options, f"--file={file}")
    assert "isn't drawn from the weights of a file" in found


def test_a_figure_of_runs_draws_them(finished, tmp_path):
    figure = papers.record.Figure(
        "curves", "curves", rows=(Row("tiny", {"width": 16, "steps": 8}, config=tiny),)
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(papers.FIGURES, "tests/figure", figure)
        (entry,) = registry.rows("tests/figure")
        entry = dataclasses.replace(entry, arms=("default", "mimetic", "norm_matched"))
        found = Results(finished.folder / "results")
        wanted = runs.Queue([entry], found, path_of(tmp_path), seeds=(0, 1))
        wanted.configs[entry.comparison].epochs = 2.0  # as the steps of a training of two epochs
        png, csv = draw.draw("tests/figure", wanted, [entry], tmp_path)
        with pytest.raises(InputError, match="no run of tests/figure is finished"):
            draw.draw("tests/figure", wanted, [], tmp_path)
    assert png.exists()
    rows = csv.read_text().splitlines()
    assert rows[0] == "row,arm,step,epoch,mean,sd,n"
    assert {",".join(row.split(",")[:4]) for row in rows[1:]} == {
        f"tiny,{arm},{when}" for arm in ("default", "mimetic") for when in ("0,0", "4,1", "8,2")
    }
