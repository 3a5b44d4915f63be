"""The launch scripts: the commands that they print, and what they do when they run them.

Each test runs in a folder of its own, with a `main.py` and command-line tools that are stubs, and
only those and a few harmless tools on the PATH: no test can reach a cloud or a cluster.
"""

import dataclasses
import importlib.util
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from mimetic_jax.train.cluster.preemption import EXIT_CODE

ROOT = pathlib.Path(__file__).parent.parent.parent
SHELL = ("slurm.sbatch", "tpu_vm.sh")
HARMLESS = "bash cat env mkdir sleep tail"


@dataclasses.dataclass
class Sandbox:
    """A folder like the root of the repository, with a PATH of its own."""

    root: pathlib.Path
    bin: pathlib.Path

    def stub(self, name: str, script: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)  # it may be a link to the real one
        path.write_text(f"#!{shutil.which('bash')}\n{script}\n")
        path.chmod(0o755)

    def command(self, script: str, *arguments: str) -> list[str]:
        return [str(self.bin / "bash"), f"launch/{script}", *arguments]

    def environment(self, **more: str) -> dict[str, str]:
        return {"PATH": str(self.bin), "PYTHON": sys.executable, **more}

    def run(
        self, script: str, *arguments: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(script, *arguments),
            cwd=self.root,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=60,
        )

    def calls(self) -> list[str]:
        """The calls that stubs recorded."""
        path = self.root / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def sandbox(tmp_path: pathlib.Path) -> Sandbox:
    sandbox = Sandbox(tmp_path / "root", tmp_path / "bin")
    sandbox.root.mkdir()
    sandbox.bin.mkdir()
    for name in HARMLESS.split():
        (sandbox.bin / name).symlink_to(str(shutil.which(name)))
    shutil.copytree(ROOT / "launch", sandbox.root / "launch")
    (sandbox.root / "main.py").touch()
    (sandbox.root / "configs").mkdir()
    (sandbox.root / "configs" / "digits_vit.py").touch()
    return sandbox


def wait_for(path: pathlib.Path, words: str) -> None:
    deadline = time.monotonic() + 30
    while not (path.exists() and words in path.read_text()):
        assert time.monotonic() < deadline, f"{words!r} never appeared in {path}"
        time.sleep(0.02)


FLAGS = ("--config=configs/digits_vit.py", "--config.seeds=(0,)")
SSH = "gcloud compute tpus tpu-vm ssh vit"

DRY_RUNS = {
    "create --spot --project=p": (
        "gcloud compute tpus queued-resources create vit --node-id=vit "
        "--accelerator-type=v5litepod-16 --runtime-version=v2-alpha-tpuv5-lite --spot --zone=z "
        "--project=p\n"
    ),
    "install": (
        "mkdir -p build\n"
        "tar -czf build/mimetic_jax.tar.gz --exclude=__pycache__ main.py pyproject.toml "
        "requirements.txt README.md LICENSE mimetic_jax configs launch\n"
        "gcloud compute tpus tpu-vm scp build/mimetic_jax.tar.gz vit:mimetic_jax.tar.gz "
        "--worker=all --zone=z\n"
        f"{SSH} --worker=all '--command=mkdir -p mimetic_jax && cd mimetic_jax && tar -xzf "
        "../mimetic_jax.tar.gz && python3 -m pip install --quiet --user uv && ~/.local/bin/uv venv "
        "--quiet --allow-existing --python 3.13 .venv && ~/.local/bin/uv pip install --quiet "
        "--python .venv --constraint requirements.txt -e '\\''.[train,tpu,gcs]'\\''' --zone=z\n"
    ),
    f"run -- {' '.join(FLAGS)}": (
        f"{SSH} --worker=all '--command=cd mimetic_jax && mkdir -p runs && {{ nohup bash -c "
        "'\\''code=75; while ((code == 75)); do code=0; .venv/bin/python main.py --distributed "
        """"$@" || code=$?; done'\\'' main.py --config=configs/digits_vit.py """
        "'\\''--config.seeds=(0,)'\\'' >> runs/tpu_vm.log 2>&1 < /dev/null & }' --zone=z\n"
    ),
    "logs": (f"{SSH} --worker=0 '--command=tail -n 100 -F mimetic_jax/runs/tpu_vm.log' --zone=z\n"),
    "delete": ("gcloud compute tpus queued-resources delete vit --force --quiet --zone=z\n"),
}


@pytest.mark.parametrize("words", DRY_RUNS)
def test_a_dry_run_prints_the_commands_and_touches_nothing(sandbox: Sandbox, words: str) -> None:
    command, *more = words.split()
    before = sorted(sandbox.root.rglob("*"))
    done = sandbox.run("tpu_vm.sh", command, "--name=vit", "--zone=z", "--dry-run", *more)
    assert (done.returncode, done.stdout, done.stderr) == (0, DRY_RUNS[words], "")
    assert sorted(sandbox.root.rglob("*")) == before


@pytest.mark.parametrize("script", SHELL)
def test_shellcheck_has_nothing_to_say(script: str) -> None:
    shellcheck = shutil.which("shellcheck") or "bash"
    check = [shellcheck, *(["-n"] if shellcheck == "bash" else []), f"launch/{script}"]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def mistaken(sandbox: Sandbox, script: str, *arguments: str, **environment: str) -> str:
    """The one line of an error with exit code 2."""
    done = sandbox.run(script, *arguments, **environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


SLURM = {"SLURM_JOB_ID": "7"}
ARRAY = {
    **SLURM,
    **{"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "8"},
}
TPU = ["tpu_vm.sh", "run", "--name=vit", "--zone=z"]
MISSING = ["--", "--config=configs/nothing.py:width=8"]


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["slurm.sbatch"], SLURM, "give the flags of main.py after launch/slurm.sbatch"),
        (["slurm.sbatch", *FLAGS], ARRAY, "an array takes launch/reproduce.py"),
        (["tpu_vm.sh", "start"], {}, "'start'"),
        (["tpu_vm.sh", "logs", "--zone=z"], {}, "--name"),
        (TPU, {}, "after --"),
        ([*TPU, "--typo"], {}, "unknown option '--typo'"),
        ([*TPU, "--dry-run", *MISSING], {}, "there is no config file 'configs/nothing.py'"),
    ],
)
def test_errors_name_what_was_given(
    sandbox: Sandbox, arguments: list[str], environment: dict[str, str], words: str
) -> None:
    assert words in mistaken(sandbox, *arguments, **environment)


@pytest.mark.parametrize(("arguments", "environment"), [(["slurm.sbatch", "x"], SLURM), (TPU, {})])
def test_scripts_start_at_the_root(
    sandbox: Sandbox, arguments: list[str], environment: dict[str, str]
) -> None:
    (sandbox.root / "main.py").unlink()
    flags = ["--", "x"] if arguments is TPU else []
    assert "root of the repository" in mistaken(sandbox, *arguments, *flags, **environment)


# slurm.sbatch, inside a job


def cluster(sandbox: Sandbox, srun: str, state: str = "RUNNING") -> None:
    sandbox.stub("srun", srun)
    sandbox.stub("squeue", f"echo {state}")
    for name in ("scontrol", "scancel"):
        sandbox.stub(name, f'echo {name} "$@" >> calls')


@pytest.mark.parametrize(
    ("code", "state", "requeued"),
    [
        (75, "RUNNING", True),
        (75, "COMPLETING", False),  # canceled by a user
        (2, "RUNNING", False),
    ],
)
def test_slurm_requeues_exit_code_75(
    sandbox: Sandbox, code: int, state: str, requeued: bool
) -> None:
    cluster(sandbox, f"exit {code}", state)
    assert sandbox.run("slurm.sbatch", *FLAGS, **SLURM).returncode == code
    assert sandbox.calls() == (["scontrol requeue 7"] if requeued else [])


@pytest.mark.parametrize(
    ("code", "expected"),
    [(137, ["scontrol requeue 7"]), (2, [])],
)
def test_slurm_sigterm_reaches_the_processes(
    sandbox: Sandbox, code: int, expected: list[str]
) -> None:
    cluster(sandbox, f"trap 'exit {code}' USR1; echo $$ > pid; while :; do sleep 0.05; done")
    sandbox.stub("scancel", 'echo scancel "$@" >> calls; kill -USR1 "$(cat pid)"')
    job = subprocess.Popen(
        sandbox.command("slurm.sbatch", *FLAGS),
        cwd=sandbox.root,
        env=sandbox.environment(**SLURM),
        stdout=subprocess.DEVNULL,
    )
    wait_for(sandbox.root / "pid", "\n")
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=30) == code
    assert sandbox.calls() == ["scancel --signal=TERM 7", *expected]


def test_a_task_of_a_slurm_array_trains_its_share(sandbox: Sandbox) -> None:
    cluster(sandbox, 'printf "%s\\n" "$@" > arguments; exit 75')
    # The job ID of the last task is that of the whole array.
    sandbox.run("slurm.sbatch", "launch/reproduce.py", "x.py", "--row=a b", **ARRAY)
    arguments = (sandbox.root / "arguments").read_text().splitlines()
    script = arguments.index("launch/reproduce.py")
    assert arguments[script + 1 :] == ["--share=7/8", "x.py", "--row=a b"]
    assert sandbox.calls() == ["scontrol requeue 7_7"]


@pytest.mark.parametrize(
    ("given", "joined"),
    [
        ({}, False),
        ({"SLURM_NTASKS": "8"}, True),
        ({"SLURM_NNODES": "2"}, True),
        ({"SLURM_NTASKS_PER_NODE": "4"}, True),
    ],
)
def test_several_processes_join(sandbox: Sandbox, given: dict[str, str], joined: bool) -> None:
    cluster(sandbox, 'printf "%s\\n" "$@" > arguments; echo "${SRUN_CPUS_PER_TASK:-}" >> arguments')
    job = {**SLURM, **given, "SLURM_CPUS_PER_TASK": "6"}
    assert sandbox.run("slurm.sbatch", *FLAGS, **job).returncode == 0
    arguments = (sandbox.root / "arguments").read_text().splitlines()
    flags = arguments[arguments.index("main.py") + 1 :]
    assert flags == [*(["--distributed"] if joined else []), *FLAGS, "6"]


# sky.yaml

LOADED = """
import json, sky, sys
task = sky.Task.from_yaml(sys.argv[1])
print(json.dumps([resources.to_yaml_config() for resources in task.resources]))
"""


@pytest.mark.slow
def test_skypilot_loads_the_task() -> None:
    if importlib.util.find_spec("sky") is None:
        pytest.skip("needs skypilot")
    done = subprocess.run(
        [sys.executable, "-c", LOADED, "launch/sky.yaml"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (resources,) = json.loads(done.stdout.splitlines()[-1])
    assert resources["use_spot"]
    assert resources["job_recovery"]["recover_on_exit_codes"] == [EXIT_CODE]


# Dockerfile


def test_image_copies_what_exists_and_nobody_runs_as_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    let_through = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in let_through
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    for source in copied:
        assert (ROOT / source).exists()
        assert f"!{source.split('/')[0]}" in let_through
    assert {"main.py", "mimetic_jax", "configs", "requirements.txt", "requirements.lock"} <= set(
        copied
    )
    (user,) = [line.split()[1] for line in lines if line.startswith("USER")]
    assert user != "root"
    assert lines.index(f"USER {user}") > max(
        number for number, line in enumerate(lines) if line.startswith("RUN")
    )
    assert any("--require-hashes -r requirements.lock" in line for line in lines)
    assert any("--constraint requirements.txt" in line for line in lines)
