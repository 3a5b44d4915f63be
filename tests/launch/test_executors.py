"""Calls of main.py: their names, and how each executor does them."""

import os
import pathlib
import re
import signal
import subprocess
import threading
import time

import pytest
import yaml

from launch import executors, reproduce
from launch.executors import Call
from mimetic_jax.errors import InputError
from mimetic_jax.train.store.places import Place

ROOT = pathlib.Path(__file__).parents[2]
DIGITS = "configs/digits_vit.py"
ROWS = ("width=16,depth=1,heads=2,steps=8", "width=32,depth=1,heads=2,steps=8")
LOGS = Place.of("logs")


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def command(workdir: pathlib.Path | str, *more: str) -> list[str]:
    """Both rows, one arm and seed, by the queue."""
    rows = [f"--row={row}" for row in ROWS]
    return [DIGITS, *rows, f"--workdir={workdir}", "--arms=default", "--seeds=0", *more]


def test_names_for_kubernetes_are_valid_and_different() -> None:
    sizes = [f"width={width},depth={depth}" for width in (96, 192, 384) for depth in (6, 12, 24)]
    calls = [
        Call(f"cifar10_vit_{size} {arm}/{seed}", (size, f"--only={arm}/{seed}"))
        for size in sizes
        for arm in ("default", "norm_matched", "mimetic")
        for seed in range(3)
    ]
    names = {call.name for call in [*calls, Call("0/run", ())]}
    assert len(names) == 9 * 3 * 3 + 1
    assert all(re.fullmatch(r"[a-z][a-z0-9-]{0,38}[a-z0-9]", name) for name in names)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seeds=a"], "--seeds=a"),
        (["--seeds=1,1"], "names a seed twice"),
        (["--jobs=0"], "--jobs=0"),
        (["--launcher=--nodes=2"], "--launcher"),
        (["--to=slurm", "--launcher=--account='a"], "No closing quotation"),
        (["--workdir="], "--workdir is empty"),
        (["--data_dir="], "--data_dir= is empty"),
        (["--to=gke", "--launcher=--image=i"], "launch/gke.py: one of the arguments --tpu --gpu"),
        (["--arms=mimetik"], "did you mean 'mimetic'"),
        (["--row=widht=1"], "did you mean 'width'"),
        ([f"--row={ROWS[0]}"], "rows must be different"),
        (["--", "--config.seeds=(1,)"], "--seeds"),
        (["--", "--config.btach=3"], "did you mean 'batch'"),
        (["--", "--config.batch"], "--config.batch has no value: write --config.batch="),
    ],
)
def test_the_command_line_reports_mistakes_in_one_line(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    with pytest.raises(SystemExit, match="2"):
        reproduce.main(command(tmp_path / "x", *arguments))
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert words in said
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [("def\n", r"can't be read \(SyntaxError"), (None, "no config file 'none.py'")],
)
def test_a_config_file_that_cannot_be_read(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], text: str | None, words: str
) -> None:
    path = tmp_path / "broken.py" if text else pathlib.Path("none.py")
    if text:
        path.write_text(text)
    with pytest.raises(SystemExit, match="2"):
        reproduce.main([str(path), f"--workdir={tmp_path / 'x'}"])
    assert re.search(words, capsys.readouterr().err)


# Slurm and GKE


def test_a_slurm_dry_run_prints_call_and_file(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workdir = tmp_path / "x"
    options = ["--to=slurm", "--jobs=2", "--dry-run", "--launcher=--gpus=1 --account='a b'"]
    assert reproduce.main(command(workdir, *options)) == 0
    call, comment, *lines = capsys.readouterr().out.splitlines()
    (path,) = re.findall(rf"{workdir}/jobs_[0-9a-f]{{8}}\.tsv", call)
    assert call == f"bash launch/slurm.sbatch --array={path} --limit=2 --gpus=1 '--account=a b'"
    assert comment == f"# contents of {path}:"
    assert [line.split("\t")[-1] for line in lines] == ["--only=default/0"] * 2
    assert not workdir.exists()


def test_slurm_reads_the_flags_of_the_calls_from_a_file_that_stays(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(executors, "_output", lambda call: commands.append(list(call)) or "sent")
    calls = [Call(f"a/{seed}", ("--config.name=a b", f"--only=a/{seed}")) for seed in range(2)]
    folder = Place.of(str(tmp_path / "new"))
    for some in (calls[:1], calls):
        assert executors.slurm(some, folder, [], None, dry_run=False) == "sent"
    paths = [pathlib.Path(call[2].partition("=")[2]) for call in commands]
    assert [len(path.read_text().splitlines()) for path in paths] == [1, 2]
    monkeypatch.setenv("PYTHON", "python")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    for number in range(2):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(number))
        in_job = [*commands[1], "--dry-run"]
        said = subprocess.run(in_job, capture_output=True, text=True, check=True).stdout
        assert said.rstrip().endswith(f"python main.py '--config.name=a b' --only=a/{number}")


@pytest.mark.parametrize(
    ("flag", "folder", "words"),
    [("--config.name=a\tb", "logs", "has a tab"), ("--x=1", "gs://bucket/x", "needs a folder")],
)
def test_what_an_array_cannot_hold(flag: str, folder: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        executors.slurm([Call("a", (flag,))], Place.of(folder), [], None, dry_run=True)


def test_gke_prints_a_manifest_for_each_call(capsys: pytest.CaptureFixture[str]) -> None:
    launcher = "--launcher=--image=i --gpu=nvidia-l4"
    assert reproduce.main(command("gs://bucket/x", "--to=gke", launcher)) == 0
    manifests = list(yaml.safe_load_all(capsys.readouterr().out))
    assert len({filled["metadata"]["name"] for filled in manifests}) == 2
    for filled, row in zip(manifests, ROWS, strict=True):
        pod = filled["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        config, seeds, workdir, only = pod["containers"][0]["args"]
        assert (config, seeds) == (f"--config={DIGITS}:{row}", "--config.seeds=(0,)")
        assert workdir.startswith(f"--workdir=gs://bucket/x/digits_vit_{row.replace(',', '_')}")
        assert only == "--only=default/0"


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
) -> list[Call]:
    (folder / "main.py").write_text(STUB)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    pathlib.Path("row").mkdir()
    return [Call(f"row {a}/{s}", ("--workdir=row", f"--only={a}/{s}")) for a, s in runs]


def test_local_goes_on_after_a_failure(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = stub_jobs(tmp_path, monkeypatch, ("works", 0), ("fails", 0), ("works", 1))
    said: list[str] = []
    assert executors.local(jobs, LOGS, 1, said.append) == 1
    assert [line.split(":")[0] for line in said] == [
        f"[{number}/3] row {run}"
        for number, run in enumerate(("works/0", "fails/0", "works/1"), 1)
        for _ in ("starts", "ends")
    ]
    assert "failed with 1: error: it can't" in said[3]
    assert "done" in said[5]


def test_local_runs_several_at_once_each_on_its_gpu(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = stub_jobs(tmp_path, monkeypatch, ("meets", 0), ("meets", 1))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert executors.local(jobs, LOGS, 2, lambda line: None) == 0
    logs = [(tmp_path / f"logs/{call.name}.log").read_text() for call in jobs]
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
    assert executors.local(jobs, LOGS, 2, said.append) == 75
    thread.join()
    assert not any("works" in line for line in said)
    assert sum("stopped" in line for line in said) == 2
    assert signal.getsignal(signal.SIGTERM) is before


# With main.py


@pytest.mark.slow
def test_rows_of_ones_own_from_calls_to_a_table(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # compiling is most of their time
    call = [DIGITS, f"--row={ROWS[0]}", f"--workdir={tmp_path}", "--arms=default,mimetic"]
    call += ["--seeds=0", "--jobs=2"]
    assert reproduce.main(call) == 0
    text = (tmp_path / "table.md").read_text()
    assert text in capsys.readouterr().out
    assert len(re.findall(r"\(1\)", text)) == 2
    (workdir,) = tmp_path.glob("digits_vit*")
    trained = sorted(str(path.relative_to(workdir / "runs")) for path in workdir.glob("runs/*/*"))
    assert trained == ["default/0", "mimetic/0"]
    assert reproduce.main(call) == 0
    assert "starts" not in capsys.readouterr().out
