"""The GPU queue on a ViT that a CPU trains in a second."""

import dataclasses
import json
import pathlib
import re
import subprocess
import sys
from typing import Any

import jax
import pytest
from ml_collections import ConfigDict

from configs import digits_vit
from launch import gpu_results
from mimetic_jax.errors import InputError
from mimetic_jax.train.compare import Comparison
from mimetic_jax.train.loop import Run

COMMAND = "python a_test.py"
STEPS, BATCH = 8, 128
PEAK = 1e12


def tiny(seeds: tuple[int, ...] = (0,)) -> ConfigDict:
    config = digits_vit.get_config(f"width=16,depth=1,heads=2,patch=4,steps={STEPS}")
    config.seeds = seeds
    config.max_dispatch = config.log_every = config.checkpoint_every = config.eval.every = 4
    arms = {arm: config.arms[arm] for arm in ("mimetic", "default")}
    config.arms = ConfigDict(arms, sort_keys=False)
    return config


@dataclasses.dataclass
class Queue:
    folder: pathlib.Path

    def __call__(self, seeds: tuple[int, ...] = (0,), stop: str = "", after: int = 1) -> str:
        """Run it; interrupt it at the line number `after` of those with `stop` in them."""
        said: list[str] = []

        def say(line: str) -> None:
            said.append(line)
            if stop and sum(stop in line for line in said) == after:
                raise KeyboardInterrupt

        results, workdir = self.folder / "results", self.folder / "runs"
        gpu_results.run_queue([tiny(seeds)], results, workdir, COMMAND, seconds=0.0, say=say)
        return "\n".join(said)

    @property
    def runs(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file("digits_vit").read_text().splitlines()]

    @property
    def throughput(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file("throughput").read_text().splitlines()]

    def file(self, name: str) -> pathlib.Path:
        return self.folder / "results" / f"{name}.jsonl"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Queue, str]:
    """A queue that ran to its end on a device of known speed, and what it said."""
    queue = Queue(tmp_path_factory.mktemp("queue"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gpu_results, "peak_flops", lambda kind: PEAK)
        return queue, queue(seeds=(0, 1))


def test_a_row_for_each_run_seeds_outermost(finished: tuple[Queue, str]) -> None:
    ran = [(row["arm"], row["seed"]) for row in finished[0].runs]
    assert ran == [("mimetic", 0), ("default", 0), ("mimetic", 1), ("default", 1)]


def test_a_run_row_says_what_and_where(finished: tuple[Queue, str]) -> None:
    for row in finished[0].runs:
        assert row["config"] == "digits_vit"
        assert (row["steps"], row["batch"], row["dtype"]) == (STEPS, BATCH, "float32")
        assert 0 < row["accuracy"] < 1
        assert row["loss"] > 0
        assert row["images_per_second"] == pytest.approx(STEPS * BATCH / row["seconds"])
        assert [step for step, _ in row["curve"]] == [0, 4, STEPS]
        assert row["curve"][-1][1] == row["accuracy"]


def test_every_row_says_its_origin(finished: tuple[Queue, str]) -> None:
    queue, said = finished
    for row in queue.runs + queue.throughput:
        assert row["device_kind"] == jax.devices()[0].device_kind
        assert row["devices"] == jax.device_count()
        assert row["jax"] == jax.__version__
        assert row["commit"] is None or re.fullmatch(r"[0-9a-f]{40}(-dirty)?", row["commit"])
        assert row["command"] == COMMAND
    assert jax.devices()[0].device_kind in said.splitlines()[0]


def test_the_throughput_row(finished: tuple[Queue, str]) -> None:
    (row,) = finished[0].throughput
    assert row["config"] == "digits_vit"
    assert row["images_per_second"] == pytest.approx(BATCH / row["seconds_per_step"])
    assert row["dispatches"] == 3
    assert row["flops_per_step"] > 1e6
    reached = row["flops_per_step"] / row["seconds_per_step"]
    assert row["mfu"] == pytest.approx(reached / (PEAK * jax.device_count()))
    statistics = jax.devices()[0].memory_stats()
    assert (row["peak_memory_bytes"] is not None) == bool(statistics)


def test_the_table_states_n(finished: tuple[Queue, str]) -> None:
    rows = re.findall(r"^\| (mimetic|default) +\|[^|]+\| (\d+) +\|", finished[1], re.MULTILINE)
    assert rows == [("mimetic", "2"), ("default", "2")]
    assert "n=2: too few seeds for a claim" in finished[1]


def test_a_second_call_adds_nothing(finished: tuple[Queue, str]) -> None:
    queue, first = finished
    before = [path.read_bytes() for path in sorted(queue.folder.glob("results/*"))]
    said = queue(seeds=(0, 1))
    assert said.count("finished before") == 4
    assert "throughput measured before" in said
    assert [path.read_bytes() for path in sorted(queue.folder.glob("results/*"))] == before
    assert said.split("\ndigits_vit\n")[-1] == first.split("\ndigits_vit\n")[-1]


def test_rows_are_enough_where_the_workdir_is_elsewhere(
    finished: tuple[Queue, str], tmp_path: pathlib.Path
) -> None:
    elsewhere = Queue(tmp_path)
    elsewhere.file("x").parent.mkdir()
    for path in finished[0].folder.glob("results/*"):
        (tmp_path / "results" / path.name).write_bytes(path.read_bytes())
    said = elsewhere(seeds=(0, 1))
    assert said.split("\ndigits_vit\n")[-1] == finished[1].split("\ndigits_vit\n")[-1]
    assert not (tmp_path / "runs").exists()


def test_an_interrupted_queue_continues(tmp_path: pathlib.Path) -> None:
    queue = Queue(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        queue(stop=f"step {STEPS:>6}/{STEPS}  loss", after=2)  # in the second run's last chunk
    (first,) = queue.runs
    # A kill while a row was written: the line is torn, the run itself is whole.
    queue.file("digits_vit").write_text(json.dumps(first)[:-20])
    said = queue()
    assert said.count("continues at step") == 1
    assert "continues at step 4" in said
    assert [row["arm"] for row in queue.runs] == ["mimetic", "default"]
    assert queue.runs[0] == first
    (row,) = queue.throughput
    unknown = gpu_results.peak_flops(row["device_kind"]) is None
    assert (row["mfu"] is None) == unknown


def test_a_failed_run_is_told_and_the_others_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(run: Run, *rest: Any) -> None:
        if run.arm == "mimetic":
            raise InputError("mimetic seed 0: the loss is nan at step 3")
        run.directory.mkdir(parents=True)
        evaluation = {"eval_accuracy": 0.5, "eval_loss": 1.0, "eval_count": 360}
        run.metrics.append({"step": STEPS, **evaluation, "seconds": 1.0, "finished": True})

    measured = {"config": "digits_vit", "images_per_second": 1.0, "mfu": None}
    monkeypatch.setattr(gpu_results, "train", train)
    monkeypatch.setattr(gpu_results, "throughput", lambda comparison, seconds: measured)
    queue = Queue(tmp_path)
    with pytest.raises(InputError, match=r"not every run finished: .*loss is nan at step 3"):
        queue()
    assert [row["arm"] for row in queue.runs] == ["default"]


def test_appending_keeps_whole_lines_and_drops_a_torn_one(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "new" / "rows.jsonl"
    gpu_results.append_row(path, {"a": 1})
    with path.open("a") as file:
        file.write('{"a": 2')
    assert gpu_results.read_rows(path) == [{"a": 1}]
    gpu_results.append_row(path, {"a": 3})
    assert path.read_text() == '{"a": 1}\n{"a": 3}\n'


def test_a_line_damaged_in_the_middle_is_an_error(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n<<<<<<<\n{"a": 3}\n')
    with pytest.raises(InputError, match=r"rows\.jsonl line 2 isn't JSON"):
        gpu_results.read_rows(path)


@pytest.mark.parametrize(
    ("kind", "peak"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-40GB", 312e12),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA RTX A1000", None),
        ("Tesla V100-SXM2-16GB", 125e12),
        ("cpu", None),
    ],
)
def test_peak_of_a_device_kind(kind: str, peak: float | None) -> None:
    assert gpu_results.peak_flops(kind) == peak


def test_the_paper_queue() -> None:
    jobs = gpu_results.paper_jobs("somewhere")
    assert [job.name for job in jobs] == ["cifar10_vit_192_12_3_p2", "cifar10_vit_192_12_6_p2"]
    for job in jobs:
        assert tuple(Comparison(job).arms) == gpu_results.ARMS
        assert job.seeds == (0, 1, 2)
        assert (job.batch, job.epochs, job.model.dtype) == (512, 100.0, "bfloat16")
        assert job.eval.every * job.batch == 10 * 97 * 512
        assert job.checkpoint_every * job.batch < 60 * 10_000


def test_missing_data_is_one_line(tmp_path: pathlib.Path) -> None:
    arguments = ["--data_dir=nowhere", f"--workdir={tmp_path}/w", f"--results={tmp_path}/r"]
    done = subprocess.run(
        [sys.executable, "launch/gpu_results.py", *arguments],
        cwd=gpu_results.ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert re.fullmatch(r"error: no cifar10 in nowhere.*\n", done.stderr)
    assert not (tmp_path / "r").exists()
