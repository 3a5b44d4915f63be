"""The sweep: its jobs, how it runs them, and the table of their rows."""

from __future__ import annotations

import doctest
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time

import pytest
import yaml
from launch.sweep import Job, Sweep

from launch import sweep
from mimetic_jax.errors import InputError
from mimetic_jax.train.loop import Run

ROOT = pathlib.Path(__file__).parent.parent.parent
DIGITS = "configs/digits_vit.py"
ROWS = ("width=16,depth=1,heads=2,steps=8", "width=32,depth=1,heads=2,steps=8")


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def finish(workdir: str, arm: str, seed: int, *accuracies: float) -> None:
    """The metrics of a finished run."""
    run = Run.of(pathlib.Path(workdir), arm, seed)
    run.directory.mkdir(parents=True)
    for step, accuracy in enumerate(accuracies):
        record = {"step": step, "eval_accuracy": accuracy, "eval_count": 9, "seconds": 1.0}
        run.metrics.append(record | ({"finished": True} if step == len(accuracies) - 1 else {}))


def command(workdir: pathlib.Path | str, *more: str) -> list[str]:
    rows = [f"--row={row}" for row in ROWS]
    return [f"--config={DIGITS}", *rows, f"--workdir={workdir}", *more]


def test_doctests() -> None:
    assert doctest.testmod(sweep).failed == 0


# Jobs


def test_a_job_for_each_row_arm_and_seed_seeds_outermost(tmp_path: pathlib.Path) -> None:
    jobs = Sweep.of(DIGITS, ROWS, str(tmp_path), ["mimetic", "default"], [3, 1]).jobs()
    names = [(job.seed, job.row.split("_")[0], job.arm) for job in jobs]
    rows_arms = [(row, arm) for row in ("width16", "width32") for arm in ("mimetic", "default")]
    assert names == [(seed, *pair) for seed in (3, 1) for pair in rows_arms]


def test_arms_and_seeds_are_those_of_the_config() -> None:
    made = Sweep.of(DIGITS, ROWS, "runs/x")
    assert made.arms == ("default", "norm_matched", "mimetic")
    assert made.seeds == (0, 1, 2)


def test_jobs_of_a_row_differ_in_the_run_alone() -> None:
    made = Sweep.of(
        DIGITS, ROWS, "runs/x/", ["default", "mimetic"], [0], "DIR", ["--config.batch=64"]
    )
    first, second, *_ = made.jobs()
    shared = (
        f"--config={DIGITS}:{ROWS[0]}",
        "--config.seeds=(0,)",
        "--config.data.dir=DIR",
        "--config.batch=64",
        "--workdir=runs/x/width16_depth1_heads2_steps8",
    )
    assert first.flags == (*shared, "--only=default/0")
    assert second.flags == (*shared, "--only=mimetic/0")


def test_names_for_kubernetes_are_valid_and_different() -> None:
    sizes = [f"width={width},depth={depth}" for width in (96, 192, 384) for depth in (6, 12, 24)]
    made = Sweep.of("configs/cifar10_vit.py", sizes, "gs://bucket/sizes")
    slugs = [job.slug for job in made.jobs()]
    assert len(set(slugs)) == 9 * 4 * 3
    assert all(re.fullmatch(r"[a-z][a-z0-9-]{0,38}[a-z0-9]", slug) for slug in slugs)
    assert re.fullmatch(r"[a-z][a-z0-9-]*", Job("runs/0", "run", 0, ()).slug)


@pytest.mark.parametrize(
    ("rows", "arms", "seeds", "flags", "words"),
    [
        (ROWS, ["mimetik"], [], [], "did you mean 'mimetic'"),
        (ROWS, ["default", "default"], [], [], "arms must be different"),
        (ROWS, [], [1, 1], [], "seeds must be different: 1, 1"),
        ((ROWS[0], ROWS[0]), [], [], [], "rows must be different"),
        (("widht=1",), [], [], [], "did you mean 'width'"),
        (ROWS, [], [], ["--config.seeds=(1,)"], "--seeds"),
        (ROWS, [], [0, 2**32], [], r"seed 4294967296 of \(0, 4294967296\) is not an integer in"),
        (ROWS, [], [-1], [], "seed -1 of"),
        (ROWS, [], [], ["--config.btach=3"], "did you mean 'batch'"),
        (ROWS, [], [], ["--config.batch"], "--config.batch has no value: write --config.batch="),
        (ROWS, [], [], ["--config.members=8"], "members 8: a population is one job"),
    ],
)
def test_mistakes_are_reported_before_anything_is_created(
    rows: tuple[str, ...], arms: list[str], seeds: list[int], flags: list[str], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        Sweep.of(DIGITS, rows, "runs/x", arms, seeds, None, flags)


def test_a_config_without_arguments_or_with_a_mistake(tmp_path: pathlib.Path) -> None:
    plain, broken = tmp_path / "plain.py", tmp_path / "broken.py"
    plain.write_text(
        "from configs.digits_vit import get_config as of\n\n\ndef get_config():\n    return of()\n"
    )
    assert Sweep.of(str(plain), [""], "runs/x").arms[0] == "default"
    broken.write_text("def\n")
    with pytest.raises(InputError, match=r"config file .*broken.py can't be read \(SyntaxError"):
        Sweep.of(str(broken), [""], "runs/x")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to=local", f"--config={DIGITS}", "--seeds=a"], "--seeds=a"),
        (["--to=local", f"--config={DIGITS}", "--jobs=0"], "--jobs 0"),
        (["--to=local", f"--config={DIGITS}", "--launcher=--nodes=2"], "--launcher"),
        (["--to=slurm", f"--config={DIGITS}", "--launcher=--account='a"], "No closing quotation"),
        (["--to=local", "--config=none.py"], "no config file 'none.py'"),
        (["--to=local", "--config="], "no config file ''"),
        (["--to=local", f"--config={DIGITS}", "--workdir="], "--workdir is empty"),
        (["--to=table", f"--config={DIGITS}", "--workdir= "], "--workdir is empty"),
        (["--to=local", f"--config={DIGITS}", "--data_dir="], "--data_dir is empty"),
        (["--to=gke", f"--config={DIGITS}", "--launcher=--gpu=g"], "run.sh: --image is missing"),
    ],
)
def test_the_command_line_reports_mistakes_in_one_line(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    assert sweep.main([f"--workdir={tmp_path / 'x'}", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert words in said
    assert not (tmp_path / "x").exists()


def test_a_bucket_is_for_the_cluster_that_sees_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.main(command("gs://bucket/x", "--to=local")) == 2
    assert "needs a folder" in capsys.readouterr().err


# Dry runs


def test_a_local_dry_run_prints_what_is_left(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{tmp_path}/width{width}_depth1_heads2_steps8" for width in (16, 32)]
    finish(rows[0], "mimetic", 0, 0.5)
    options = ["--arms=default,mimetic", "--seeds=0", "--to=local", "--dry-run"]
    assert sweep.main(command(tmp_path, *options, "--", "--config.batch=64")) == 0
    printed = [
        f"python main.py --config={DIGITS}:{ROWS[row]} '--config.seeds=(0,)' --config.batch=64 "
        f"--workdir={rows[row]} --only={arm}/0"
        for row, arm in ((0, "default"), (1, "default"), (1, "mimetic"))
    ]
    assert capsys.readouterr().out.splitlines() == ["1 of 4 runs finished before", *printed]
    assert not pathlib.Path(rows[1]).exists()


def test_a_slurm_dry_run_prints_call_and_file(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--arms=default", "--seeds=0", "--to=slurm", "--jobs=2", "--dry-run"]
    workdir = tmp_path / "x"
    sweep.main(command(workdir, *options, "--launcher=--gpus=1 --account='a b'"))
    call, comment, *lines = capsys.readouterr().out.splitlines()
    (path,) = re.findall(rf"{workdir}/jobs_[0-9a-f]{{8}}\.tsv", call)
    assert call == f"bash launch/slurm.sbatch --array={path} --limit=2 --gpus=1 '--account=a b'"
    assert comment == f"# contents of {path}:"
    assert [line.split("\t")[-1] for line in lines] == ["--only=default/0"] * 2
    assert not workdir.exists()


def test_slurm_reads_the_flags_of_the_jobs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Sweep.of(DIGITS, ROWS, str(tmp_path), ["default"], [0, 1], "a folder").jobs()
    path = tmp_path / "jobs.tsv"
    path.write_text(sweep.array_file(jobs))
    monkeypatch.setenv("PYTHON", "python")
    for number, job in enumerate(jobs):
        monkeypatch.setenv("SLURM_JOB_ID", "7")
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(number))
        call = [*sweep.slurm_command(str(path), [], None), "--dry-run"]
        said = subprocess.run(call, capture_output=True, text=True, check=True).stdout
        words = [flag if re.fullmatch(r"[\w./:=,-]+", flag) else f"'{flag}'" for flag in job.flags]
        assert said.rstrip().endswith(f"python main.py {' '.join(words)}")


def test_slurm_cannot_take_a_tab() -> None:
    with pytest.raises(InputError, match="tab"):
        sweep.array_file([Job("runs/x", "a", 0, ("--config.name=a\tb",))])


def test_slurm_submits_a_file_that_stays(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(sweep, "output", lambda call: calls.append(list(call)) or "submitted")
    for seeds in ("0", "0,1"):
        sweep.main(command(tmp_path, "--arms=default", f"--seeds={seeds}", "--to=slurm"))
    files = [pathlib.Path(call[2].partition("=")[2]) for call in calls]
    assert [len(file.read_text().splitlines()) for file in files] == [2, 4]
    assert "0 of 2 runs are finished." in capsys.readouterr().out


def test_gke_prints_a_manifest_for_each_job(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--arms=default,mimetic", "--seeds=0", "--to=gke"]
    sweep.main(command("gs://bucket/x", *options, "--launcher=--image=i --gpu=nvidia-l4"))
    manifests = list(yaml.safe_load_all(capsys.readouterr().out))
    jobs = Sweep.of(DIGITS, ROWS, "gs://bucket/x", ["default", "mimetic"], [0]).jobs()
    assert [filled["metadata"]["name"] for filled in manifests] == [job.slug for job in jobs]
    for filled, job in zip(manifests, jobs, strict=True):
        pod = filled["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        assert tuple(pod["containers"][0]["args"]) == job.flags


# Local jobs, with a main.py that is a stub

STUB = """
import os, pathlib, signal, sys, time
flags = dict(flag.lstrip("-").split("=", 1) for flag in sys.argv[1:])
arm, seed = flags["only"].split("/")
print(arm, seed, os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
if arm == "fails":
    sys.exit("error: it can't")
if arm == "waits":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    pathlib.Path(flags["workdir"], "ready" + seed).touch()
    time.sleep(60)
if arm == "meets":  # ends only if the other runs at the same time
    pathlib.Path(flags["workdir"], "here" + seed).touch()
    while len(list(pathlib.Path(flags["workdir"]).glob("here*"))) < 2:
        time.sleep(0.02)
"""


def stub_jobs(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, *runs: tuple[str, int]
) -> list[Job]:
    (folder / "main.py").write_text(STUB)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return [Job("row", a, s, ("--workdir=row", f"--only={a}/{s}")) for a, s in runs]


def test_local_goes_on_after_a_failure(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = stub_jobs(tmp_path, monkeypatch, ("works", 0), ("fails", 0), ("works", 1))
    said: list[str] = []
    assert sweep.run_local(jobs, 1, said.append) == 1
    assert [line.split(":")[0] for line in said] == [
        f"[{number}/3] row {run}"
        for number, run in enumerate(("works seed 0", "fails seed 0", "works seed 1"), 1)
        for _ in ("starts", "ends")
    ]
    assert "failed with 1: error: it can't" in said[3]
    assert "done" in said[5]


def test_local_runs_several_at_once_each_on_its_gpu(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = stub_jobs(tmp_path, monkeypatch, ("meets", 0), ("meets", 1))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert sweep.run_local(jobs, 2, lambda line: None) == 0
    logs = [pathlib.Path(f"row/logs/meets_{seed}.log").read_text() for seed in (0, 1)]
    assert logs == ["meets 0 4\n", "meets 1 7\n"]


def test_local_sigterm_stops_jobs_and_starts_no_other(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = stub_jobs(tmp_path, monkeypatch, ("waits", 0), ("waits", 1), ("works", 0))

    def terminate() -> None:
        deadline = time.monotonic() + 30
        while len(list(pathlib.Path("row").glob("ready*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=terminate)
    thread.start()
    said: list[str] = []
    assert sweep.run_local(jobs, 2, said.append) == 75
    thread.join()
    assert not any("works" in line for line in said)
    assert sum("stopped" in line for line in said) == 2
    assert signal.getsignal(signal.SIGTERM) is before


# The table


def test_the_table_has_a_line_for_each_row_and_arm(tmp_path: pathlib.Path) -> None:
    rows = ("width=1", "width=2", "width=3")
    made = Sweep(DIGITS, rows, str(tmp_path), ("default", "mimetic"), (0, 1), ())
    for seed, (default, mimetic) in enumerate([(0.5, 0.75), (0.6, 0.65)]):
        finish(f"{tmp_path}/width1", "default", seed, 0.1, default)
        finish(f"{tmp_path}/width1", "mimetic", seed, 0.1, mimetic)
    finish(f"{tmp_path}/width2", "mimetic", 1, 0.3)
    lines = sweep.table(made).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:5]]
    assert cells[0][:5] == ["row", "arm", "accuracy %", "n", "Δ default [95 % CI]"]
    # Differences 25 and 5: mean 15, t(0.975, 1) = 12.7062, sd / sqrt(2) = 10.
    assert [row[:5] for row in cells[2:]] == [
        ["width=1", "default", "55.00 ± 7.07", "2", ""],
        ["width=1", "mimetic", "70.00 ± 7.07", "2", "+15.00 [-112.06, +142.06]"],
        ["width=2", "mimetic", "30.00", "1", ""],
    ]
    assert lines[5:] == [
        "",
        "width=1, mimetic against default: +15.00 [-112.06, +142.06] points, n=2: too few seeds "
        "for a claim (3 needed)",
        "",
        "5 of 12 runs are finished.",
    ]


def test_the_table_knows_other_scores(tmp_path: pathlib.Path) -> None:
    made = Sweep(DIGITS, ("width=1",), str(tmp_path), ("run",), (0,), ())
    run = Run.of(tmp_path / "width1", "run", 0)
    run.directory.mkdir(parents=True)
    scores = {"eval_test_perplexity": 20.0, "eval_perplexity": 21.0, "eval_count": 9}
    run.metrics.append({"step": 1, **scores, "seconds": 1.0, "finished": True})
    assert "| test perplexity |" in sweep.table(made)
    assert "| 20.00 " in sweep.table(made)


def test_the_table_is_printed_and_written(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for width in (16, 32):
        finish(f"{tmp_path}/width{width}_depth1_heads2_steps8", "mimetic", 0, 0.5)
    options = ["--arms=mimetic", "--seeds=0"]
    assert sweep.main(command(tmp_path, *options, "--to=local")) == 0  # nothing is left
    text = (tmp_path / "table.md").read_text()
    assert "2 of 2 runs are finished." in text
    assert text in capsys.readouterr().out


# With main.py


@pytest.mark.skipif(
    not re.search(r'"only"', (ROOT / "main.py").read_text()), reason="main.py has no --only"
)
def test_a_sweep_from_jobs_to_table(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = f"--row={ROWS[0]}"
    options = ["--arms=default,mimetic", "--seeds=0", "--to=local", "--jobs=2"]
    call = [f"--config={DIGITS}", row, f"--workdir={tmp_path}", *options]
    assert sweep.main(call) == 0
    assert "2 of 2 runs are finished." in capsys.readouterr().out
    workdir = tmp_path / "width16_depth1_heads2_steps8"
    # config.json describes the whole comparison, whichever job wrote it.
    record = json.loads((workdir / "config.json").read_text())
    assert (record["seeds"], len(record["arms"])) == ([0], 3)
    trained = sorted(str(path.relative_to(workdir / "runs")) for path in workdir.glob("runs/*/*"))
    assert trained == ["default/0", "mimetic/0"]
    assert sweep.main(call) == 0
    again = capsys.readouterr().out
    assert "2 of 2 runs finished before" in again
    assert again.endswith((tmp_path / "table.md").read_text())
    assert sweep.main([*call, "--", "--config.batch=64"]) == 2
    assert "(batch is 128 there and 64 here)" in capsys.readouterr().err
