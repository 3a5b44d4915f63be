"""Train the runs of a comparison that have no record yet, and tabulate all records."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from ml_collections import ConfigDict

from benchmarks.gpu.records import Record, append_record, find_record, read_records
from mimetic_jax.errors import InputError
from mimetic_jax.train import config as configs
from mimetic_jax.train import report
from mimetic_jax.train.compare import Comparison
from mimetic_jax.train.tasks import task_module
from mimetic_jax.train.workdir.runs import Run


def check_data(config: ConfigDict, results: pathlib.Path) -> None:
    """Load the data of runs that have no record, to fail before anything else is done.

    Raises:
        InputError: if the data is missing or the records are damaged.
    """
    if _missing(config, read_records(_file(results, config))):
        task_module(config.task).load(config)


def train_missing(
    comparison: Comparison, results: pathlib.Path, workdir: pathlib.Path, origin: Record
) -> list[str]:
    """Train the runs without a record and append one per finished run; returns the failures.

    Scores are in the unit of the table: per cent, bits per character.
    """
    config, failures = comparison.config, []
    path, workdir = _file(results, config), workdir / config.name
    missing = _missing(config, read_records(path))
    for number, (arm, seed) in enumerate(_all(config), 1):
        label = f"[{number}/{len(_all(config))}] {config.name} {arm} seed {seed}"
        if (arm, seed) not in missing:
            comparison.say(f"{label}: finished before")
            continue
        comparison.say(f"{label}: starts")
        comparison.open()
        comparison.claim(workdir)
        run = Run.of(workdir, arm, seed)
        try:
            # The last call may have been stopped between the end of a run and its record.
            if not run.finished():
                comparison.run(run, comparison.say)
        except InputError as error:
            comparison.say(f"{label}: failed: {error}")
            failures.append(f"{config.name}: {error}")
        else:
            append_record(path, _run_record(comparison, workdir, run) | origin)
    return failures


def table(comparison: Comparison, results: pathlib.Path) -> str:
    """The comparison's table, with n, from the records alone, not from a workdir."""
    config = comparison.config
    records = [
        record for record in read_records(_file(results, config)) if record["config"] == config.name
    ]
    score = comparison.score
    arms = []
    for arm in comparison.arms:
        of_seed = {record["seed"]: record for record in records if record["arm"] == arm}
        reached, curves, seconds = (
            {seed: record[name] for seed, record in of_seed.items()}
            for name in (score.name, "curve", "seconds")
        )
        arms.append(report.ArmResult(arm, reached, curves, seconds, score))
    return report.table(arms)


def _file(results: pathlib.Path, config: ConfigDict) -> pathlib.Path:
    model = {"images": "_vit", "text": ""}[config.task]
    return results / f"{config.data.name}{model}.jsonl"


def _all(config: ConfigDict) -> list[tuple[str, int]]:
    return [(arm, seed) for seed in config.seeds for arm in configs.arms(config)]


def _missing(config: ConfigDict, records: Sequence[Record]) -> list[tuple[str, int]]:
    """The runs without a record from any machine."""
    return [
        (arm, seed)
        for arm, seed in _all(config)
        if not find_record(records, config=config.name, arm=arm, seed=seed)
    ]


def _run_record(comparison: Comparison, workdir: pathlib.Path, run: Run) -> Record:
    arm, score = comparison.arms[run.arm], comparison.score
    program = arm.program
    result = report.ArmResult.read(workdir, run.arm, [run.seed], score)
    seconds = result.seconds[run.seed]
    return {
        "config": comparison.config.name,
        "arm": run.arm,
        "seed": run.seed,
        "steps": program.steps,
        "batch": program.batch,
        "dtype": arm.config.model.dtype,
        score.name: result.reached[run.seed],
        "loss": run.evaluations()[-1]["eval_loss"],
        "seconds": seconds,
        f"{program.task.unit}_per_second": program.steps * program.task.per_step / seconds,
        "curve": result.curve[run.seed],
    }
