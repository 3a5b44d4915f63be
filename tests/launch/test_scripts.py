"""The launch scripts, the task of SkyPilot and the image, as far as no cluster is needed."""

import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

from mimetic_jax.train.cluster.preemption import EXIT_CODE

ROOT = pathlib.Path(__file__).parent.parent.parent
CONFIG = "--config=configs/digits_vit.py"
TPU = ["tpu_vm.sh", "run", "--name=vit", "--zone=z"]


def bash(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A call without the PATH on which the tools of a cloud or a cluster could be."""
    return subprocess.run(
        [str(shutil.which("bash")), *command],
        cwd=ROOT,
        env={"PATH": "", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("script", ["slurm.sbatch", "tpu_vm.sh"])
def test_shellcheck_has_nothing_to_say(script: str) -> None:
    shellcheck = shutil.which("shellcheck") or "bash"
    check = [shellcheck, *(["-n"] if shellcheck == "bash" else []), f"launch/{script}"]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_dry_run_quotes_the_flags_for_the_workers() -> None:
    done = bash(*("launch/tpu_vm.sh", *TPU[1:], "--dry-run", "--", CONFIG, "--config.seeds=(0,)"))
    command = (
        "gcloud compute tpus tpu-vm ssh vit --worker=all '--command=cd mimetic_jax && mkdir -p "
        "runs && { nohup bash -c '\\''code=75; while ((code == 75)); do code=0; .venv/bin/python "
        """main.py --distributed "$@" || code=$?; done'\\'' main.py """
        f"{CONFIG} '\\''--config.seeds=(0,)'\\'' >> runs/tpu_vm.log 2>&1 < /dev/null & }}' "
        "--zone=z\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, command, "")


JOB = {"SLURM_JOB_ID": "7"}
ARRAY = {**JOB, "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "7"}


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_is_the_head_of_the_script(flag: str) -> None:
    done = bash("launch/tpu_vm.sh", flag)
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("create", "install", "run", "logs", "delete", "--type"):
        assert f"\n  {'' if word[0] == '-' else 'bash launch/tpu_vm.sh '}{word}" in done.stdout
    assert "pipefail" not in done.stdout
    assert not re.search("^#", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["slurm.sbatch"], JOB, "give the flags of main.py after launch/slurm.sbatch"),
        (["slurm.sbatch", CONFIG], ARRAY, "an array takes launch/reproduce.py"),
        (["tpu_vm.sh", "start"], {}, "'start'"),
        (["tpu_vm.sh", "logs", "--zone=z"], {}, "--name"),
        (TPU, {}, "after --"),
        ([*TPU, "--typo"], {}, "unknown option '--typo'"),
        ([*TPU, "--", "--config=configs/nothing.py:width=8"], {}, "no config file"),
    ],
)
def test_errors_name_what_was_given(
    arguments: list[str], environment: dict[str, str], words: str
) -> None:
    script, *options = arguments
    done = bash(f"launch/{script}", *options, **environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def test_managed_jobs_start_again_after_our_exit_code() -> None:
    task = yaml.safe_load((ROOT / "launch" / "sky.yaml").read_text())
    assert task["resources"]["job_recovery"]["recover_on_exit_codes"] == [EXIT_CODE]


def test_image_copies_what_exists_and_nobody_runs_as_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    let_through = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in let_through
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    for source in copied:
        assert (ROOT / source).exists()
        assert f"!{source.split('/')[0]}" in let_through
    needed = {"main.py", "mimetic_jax", "configs", "requirements.txt", "requirements.lock"}
    assert needed <= {*copied}
    (user,) = [line.split()[1] for line in lines if line.startswith("USER")]
    assert user != "root"
    assert not any(line.startswith("RUN") for line in lines[lines.index(f"USER {user}") :])
    assert any("--require-hashes -r requirements.lock" in line for line in lines)
    assert any("--constraint requirements.txt" in line for line in lines)
