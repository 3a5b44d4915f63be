"""The launch scripts: the commands that they print, and what they do when they run them.

Each test runs in a folder of its own, with a `main.py` and command-line tools that are stubs, and
only those and a few harmless tools on the PATH: no test can reach a cloud or a cluster.
"""

import dataclasses
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
SHELL = ("slurm.sbatch", "tpu_vm.sh")
SCRIPTS = ("local.py", *SHELL)
HARMLESS = "awk bash cat date env gzip mkdir rm sed seq sleep tail tar touch wc"
MAIN = """
import os, signal, sys, time
print(*sys.argv[1:], os.environ.get("XLA_FLAGS"), flush=True)
process = next((f[-1] for f in sys.argv if f.startswith("--process_id=")), "0")
for flag in sys.argv:
    name, _, value = flag.partition("=")
    if name == "--sleep":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
        print("ready", flush=True)
        time.sleep(float(value))
    if name == "--exit_" + process:
        sys.exit(int(value))
"""


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
        interpreter = sys.executable if script.endswith(".py") else str(self.bin / "bash")
        return [interpreter, f"launch/{script}", *arguments]

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

    def listing(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))

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
    (sandbox.root / "main.py").write_text(MAIN)
    return sandbox


def wait_for(path: pathlib.Path, words: str) -> None:
    deadline = time.monotonic() + 30
    while not (path.exists() and words in path.read_text()):
        assert time.monotonic() < deadline, f"{words!r} never appeared in {path}"
        time.sleep(0.02)


FLAGS = ("--config=configs/digits_vit.py", "--config.seeds=(0,)")
SHOWN = "--config=configs/digits_vit.py '--config.seeds=(0,)'"
SSH = "gcloud compute tpus tpu-vm ssh vit"

DRY_RUNS = {
    "local": (
        ["local.py", "2", "--devices=4", "--port=1234", "--logs=logs", "--dry-run", "--", *FLAGS],
        "env JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=4 PYTHON main.py "
        f"--coordinator=127.0.0.1:1234 --num_processes=2 --process_id=0 {SHOWN} > logs/0.log 2>&1 &"
        "\n"
        "env JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=4 PYTHON main.py "
        f"--coordinator=127.0.0.1:1234 --num_processes=2 --process_id=1 {SHOWN} > logs/1.log 2>&1 &"
        "\n",
    ),
    "one process per gpu": (
        ["slurm.sbatch", "--nodes=2", "--gpus=8", "--time=4:00:00", "--dry-run", "--", *FLAGS],
        "sbatch --nodes=2 --ntasks-per-node=8 --cpus-per-task=8 --gpus-per-node=8 "
        "--output=runs/slurm/%x-%j.out --time=4:00:00 launch/slurm.sbatch --per=gpu --nodes=2 "
        f"--gpus=8 --cpus=8 -- {SHOWN}\n"
        "# in the job: srun --nodes=2 --ntasks-per-node=8 --cpus-per-task=8 --kill-on-bad-exit=1 "
        f"PYTHON main.py --distributed {SHOWN}\n",
    ),
    "one process per node": (
        [
            *["slurm.sbatch", "--per=node", "--nodes=2", "--gpus=4", "--cpus=32"],
            *["--dry-run", "--", *FLAGS],
        ],
        "sbatch --nodes=2 --ntasks-per-node=1 --cpus-per-task=32 --gpus-per-node=4 "
        "--output=runs/slurm/%x-%j.out launch/slurm.sbatch --per=node --nodes=2 --gpus=4 "
        f"--cpus=32 -- {SHOWN}\n"
        "# in the job: env JAX_LOCAL_DEVICE_IDS=0,1,2,3 srun --nodes=2 --ntasks-per-node=1 "
        f"--cpus-per-task=32 --kill-on-bad-exit=1 PYTHON main.py --distributed {SHOWN}\n",
    ),
    "one gpu is no cluster": (
        ["slurm.sbatch", "--dry-run", "--", *FLAGS],
        "sbatch --nodes=1 --ntasks-per-node=1 --cpus-per-task=8 --gpus-per-node=1 "
        "--output=runs/slurm/%x-%j.out launch/slurm.sbatch --per=gpu --nodes=1 --gpus=1 --cpus=8 "
        f"-- {SHOWN}\n"
        "# in the job: srun --nodes=1 --ntasks-per-node=1 --cpus-per-task=8 --kill-on-bad-exit=1 "
        f"PYTHON main.py {SHOWN}\n",
    ),
    "create": (
        ["tpu_vm.sh", "create", "--name=vit", "--zone=z", "--spot", "--project=p", "--dry-run"],
        "gcloud compute tpus queued-resources create vit --node-id=vit "
        "--accelerator-type=v5litepod-16 --runtime-version=v2-alpha-tpuv5-lite --spot --zone=z "
        "--project=p\n",
    ),
    "install": (
        ["tpu_vm.sh", "install", "--name=vit", "--zone=z", "--dry-run"],
        "mkdir -p build\n"
        "tar -czf build/mimetic_jax.tar.gz --exclude=__pycache__ main.py pyproject.toml "
        "requirements.txt README.md LICENSE mimetic_jax configs launch\n"
        "gcloud compute tpus tpu-vm scp build/mimetic_jax.tar.gz vit:mimetic_jax.tar.gz "
        "--worker=all --zone=z\n"
        f"{SSH} --worker=all '--command=mkdir -p mimetic_jax && cd mimetic_jax && tar -xzf "
        "../mimetic_jax.tar.gz && python3 -m pip install --quiet --user uv && ~/.local/bin/uv venv "
        "--quiet --allow-existing --python 3.11 .venv && ~/.local/bin/uv pip install --quiet "
        "--python .venv --constraint requirements.txt -e '\\''.[train,tpu,gcs]'\\''' --zone=z\n",
    ),
    "run": (
        ["tpu_vm.sh", "run", "--name=vit", "--zone=z", "--dry-run", "--", *FLAGS],
        f"{SSH} --worker=all '--command=cd mimetic_jax && mkdir -p runs && rm -f "
        "runs/tpu_vm.ended && touch runs/tpu_vm.started && { nohup bash launch/tpu_vm.sh worker -- "
        "--config=configs/digits_vit.py '\\''--config.seeds=(0,)'\\'' >> runs/tpu_vm.log 2>&1 < "
        "/dev/null & }' --zone=z\n",
    ),
    "logs": (
        ["tpu_vm.sh", "logs", "--name=vit", "--zone=z", "--dry-run"],
        f"{SSH} --worker=0 '--command=cd mimetic_jax && tail -n 100 -F runs/tpu_vm.log' --zone=z\n",
    ),
    "delete": (
        ["tpu_vm.sh", "delete", "--name=vit", "--zone=z", "--dry-run"],
        "gcloud compute tpus queued-resources delete vit --force --quiet --zone=z\n",
    ),
}


@pytest.mark.parametrize("name", DRY_RUNS)
def test_a_dry_run_prints_the_commands_and_touches_nothing(sandbox: Sandbox, name: str) -> None:
    arguments, expected = DRY_RUNS[name]
    before = sandbox.listing()
    done = sandbox.run(*arguments)
    assert done.stderr == ""
    assert done.stdout == expected.replace("PYTHON", sys.executable)
    assert done.returncode == 0
    assert sandbox.listing() == before


def test_the_dry_run_of_keep_is_made_of_the_other_commands(sandbox: Sandbox) -> None:
    options = ["--name=vit", "--zone=z", "--dry-run"]
    keep = sandbox.run("tpu_vm.sh", "keep", *options, "--", *FLAGS).stdout
    for name in ("create", "install", "delete"):
        assert sandbox.run("tpu_vm.sh", name, *options).stdout in keep
    assert sandbox.run("tpu_vm.sh", "run", *options, "--", *FLAGS).stdout in keep


@pytest.mark.parametrize("script", SHELL)
def test_shellcheck_has_nothing_to_say(script: str) -> None:
    shellcheck = shutil.which("shellcheck") or "bash"
    check = [shellcheck, *(["-n"] if shellcheck == "bash" else []), f"launch/{script}"]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("script", SHELL)
def test_help_lists_every_option(sandbox: Sandbox, script: str) -> None:
    text = sandbox.run(script, "--help").stdout
    assert f"bash launch/{script}" in text
    known = set(re.findall(r"^ +(--[a-z-]+)=?\*?\)", (ROOT / "launch" / script).read_text(), re.M))
    assert {"--dry-run"} < known
    assert {option for option in known if option not in text} == set()


ENOUGH = {
    "local.py": ["2", "--port=1"],
    "slurm.sbatch": [],
    "tpu_vm.sh": ["keep", "--name=vit", "--zone=z"],
}
TOOLS = {"slurm.sbatch": "sbatch", "tpu_vm.sh": "gcloud"}


def mistaken(sandbox: Sandbox, script: str, *arguments: str, **environment: str) -> str:
    """The one line of an error with exit code 2."""
    done = sandbox.run(script, *arguments, **environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("script", TOOLS)
def test_a_missing_tool_is_one_line(sandbox: Sandbox, script: str) -> None:
    said = mistaken(sandbox, script, *ENOUGH[script], "--", *FLAGS)
    assert f"{TOOLS[script]} is not installed" in said


@pytest.mark.parametrize("script", SCRIPTS)
def test_flags_and_folder_are_required(sandbox: Sandbox, script: str) -> None:
    assert "after --" in mistaken(sandbox, script, *ENOUGH[script])
    assert "unknown option '--typo'" in mistaken(sandbox, script, *ENOUGH[script], "--typo")
    (sandbox.root / "main.py").unlink()
    assert "root of the repository" in mistaken(sandbox, script, *ENOUGH[script], "--", *FLAGS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["local.py", "none", "--", "x"], "'none'"),
        (["local.py", "2", "--devices=0", "--", "x"], "--devices: '0'"),
        (["slurm.sbatch", "--per=rack", "--", "x"], "'rack'"),
        (["slurm.sbatch", "--array=none.tsv"], "none.tsv"),
        (["tpu_vm.sh", "start"], "'start'"),
        (["tpu_vm.sh", "logs", "--zone=z"], "--name"),
    ],
)
def test_errors_name_what_was_given(sandbox: Sandbox, arguments: list[str], words: str) -> None:
    assert words in mistaken(sandbox, *arguments)


# local.py


def test_local_processes_join_and_have_logs(sandbox: Sandbox) -> None:
    done = sandbox.run(
        "local.py", "3", "--devices=2", "--logs=logs", "--", "--a=b c", XLA_FLAGS="-x"
    )
    assert done.returncode == 0, done.stderr
    said = [(sandbox.root / f"logs/{process}.log").read_text() for process in range(3)]
    ports = {match[1] for text in said if (match := re.search(r"127\.0\.0\.1:(\d+)", text))}
    assert len(ports) == 1
    for process, text in enumerate(said):
        assert f"--num_processes=3 --process_id={process} --a=b c -x --xla_force" in text
        assert text.endswith("device_count=2\n")


@pytest.mark.parametrize(("codes", "worst"), [((0, 0), 0), ((75, 0), 75), ((2, 75), 2)])
def test_local_exit_code_is_the_worst(sandbox: Sandbox, codes: tuple[int, int], worst: int) -> None:
    flags = [f"--exit_{process}={code}" for process, code in enumerate(codes)]
    assert sandbox.run("local.py", "2", "--", *flags).returncode == worst


def test_local_sigterm_reaches_every_process(sandbox: Sandbox) -> None:
    command = sandbox.command("local.py", "2", "--logs=logs", "--", "--sleep=60")
    launched = subprocess.Popen(
        command, cwd=sandbox.root, env=sandbox.environment(), stdout=subprocess.DEVNULL
    )
    for process in range(2):
        wait_for(sandbox.root / f"logs/{process}.log", "ready")
    launched.send_signal(signal.SIGTERM)
    assert launched.wait(timeout=30) == 75


def test_local_failure_ends_all(sandbox: Sandbox) -> None:
    failing = sandbox.root / "main.py"
    failing.write_text(MAIN.replace('if name == "--sleep":', 'if name == "--sleep_" + process:'))
    done = sandbox.run("local.py", "2", "--logs=logs", "--", "--sleep_0=60", "--exit_1=3")
    assert done.returncode == 3
    assert "process 1 ended with 3" in done.stderr
    assert "--process_id=1" in done.stderr  # the end of its log


# slurm.sbatch, inside a job

SLURM = {"SLURM_JOB_ID": "7"}


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
    assert sandbox.run("slurm.sbatch", "--", *FLAGS, **SLURM).returncode == code
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
        sandbox.command("slurm.sbatch", "--", *FLAGS),
        cwd=sandbox.root,
        env=sandbox.environment(**SLURM),
        stdout=subprocess.DEVNULL,
    )
    wait_for(sandbox.root / "pid", "\n")
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=30) == code
    assert sandbox.calls() == ["scancel --signal=TERM 7", *expected]


def test_slurm_array_runs_its_line_and_names_its_task(sandbox: Sandbox) -> None:
    (sandbox.root / "jobs.tsv").write_text("--a=1\t--b=x y\n--a=2\t--b='z'\n")
    cluster(sandbox, 'printf "%s\\n" "$@" > arguments; exit 75')
    # The job ID of the last task is that of the whole array.
    array = {**SLURM, "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "0"}
    sandbox.run("slurm.sbatch", "--array=jobs.tsv", **array)
    arguments = (sandbox.root / "arguments").read_text().splitlines()
    assert arguments[arguments.index("main.py") + 1 :] == ["--a=1", "--b=x y"]
    assert sandbox.calls() == ["scontrol requeue 7_0"]


def test_slurm_array_is_submitted_with_a_limit(sandbox: Sandbox) -> None:
    (sandbox.root / "jobs.tsv").write_text("--a=1\n--a=2\n--a=3\n")
    sandbox.stub("sbatch", 'echo sbatch "$@" >> calls')
    done = sandbox.run("slurm.sbatch", "--array=jobs.tsv", "--limit=2", "--account=me")
    assert done.returncode == 0, done.stderr
    assert sandbox.calls() == [
        "sbatch --nodes=1 --ntasks-per-node=1 --cpus-per-task=8 --gpus-per-node=1 --array=0-2%2 "
        "--output=runs/slurm/%x-%A_%a.out --account=me launch/slurm.sbatch --per=gpu --nodes=1 "
        "--gpus=1 --cpus=8 --array=jobs.tsv"
    ]
    assert (sandbox.root / "runs/slurm").is_dir()  # Slurm doesn't create it


@pytest.mark.parametrize("lines", ["\n", "--a=1\n \t\n"])
@pytest.mark.parametrize("inside", [{}, {**SLURM, "SLURM_ARRAY_TASK_ID": "0"}])
def test_an_empty_line_of_a_job_file_is_refused(
    sandbox: Sandbox, lines: str, inside: dict[str, str]
) -> None:
    (sandbox.root / "jobs.tsv").write_text(lines)
    done = sandbox.run("slurm.sbatch", "--array=jobs.tsv", "--dry-run", **inside)
    assert done.returncode == 2
    assert "of the job file jobs.tsv is empty" in done.stderr
    assert not done.stdout


def test_each_line_of_a_job_file_is_shown_with_its_own_flags(sandbox: Sandbox) -> None:
    (sandbox.root / "jobs.tsv").write_text("--a=1\t--b=2\n--c=3\n")
    done = sandbox.run("slurm.sbatch", "--array=jobs.tsv", "--dry-run")
    shown = [line.partition("main.py ")[2] for line in done.stdout.splitlines()[1:]]
    assert shown == ["--a=1 --b=2", "--c=3"]


def test_a_task_without_a_line_is_one_line(sandbox: Sandbox) -> None:
    (sandbox.root / "jobs.tsv").write_text("--a=1\n")
    array = {**SLURM, "SLURM_ARRAY_TASK_ID": "7"}
    done = sandbox.run("slurm.sbatch", "--array=jobs.tsv", **array)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "jobs.tsv has no line for task '7'" in done.stderr


# tpu_vm.sh

GCLOUD = """
echo "$@" >> calls
case "$*" in
  *describe*)
    state=$(sed -n 1p states)
    sed -i 1d states
    [[ $state != NOT_FOUND ]] || { echo 'ERROR: NOT_FOUND: no such thing' >&2; exit 1; }
    [[ $state != BROKEN ]] || { echo 'ERROR: no network' >&2; exit 1; }
    echo "$state" ;;
  *worker=0*)
    sed -n 1p answers
    sed -i 1d answers ;;
esac
"""


def kept(sandbox: Sandbox, states: list[str], answers: list[str]) -> tuple[int, list[str]]:
    """Exit code of keep, and its actions between checks."""
    sandbox.stub("gcloud", GCLOUD)
    for name in ("pyproject.toml", "requirements.txt", "README.md", "LICENSE"):
        (sandbox.root / name).touch()
    for name in ("mimetic_jax", "configs"):
        (sandbox.root / name).mkdir()
    (sandbox.root / "states").write_text("".join(f"{state}\n" for state in states))
    (sandbox.root / "answers").write_text("".join(f"{answer}\n" for answer in answers))
    options = ["--name=vit", "--zone=z", "--poll=0"]
    code = sandbox.run("tpu_vm.sh", "keep", *options, "--", *FLAGS).returncode
    assert (sandbox.root / "states").read_text() == ""
    words = {"create": "create", "delete": "delete", "scp": "copy", "uv venv": "install"}
    words["nohup"] = "start"
    done = [next((w for part, w in words.items() if part in call), "") for call in sandbox.calls()]
    return code, [word for word in done if word]


def test_keep_starts_again_after_preemption(sandbox: Sandbox) -> None:
    first = ["NOT_FOUND", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE", "ACTIVE", "ACTIVE"]
    lost = ["SUSPENDING", "SUSPENDED", "NOT_FOUND", "ACTIVE", "ACTIVE"]
    answers = ["", "fresh", "running", "fresh", "0"]
    begun = ["create", "copy", "install", "start"]
    assert kept(sandbox, first + lost, answers) == (0, [*begun, "delete", *begun])


def test_keep_does_not_restart_a_running_run(sandbox: Sandbox) -> None:
    assert kept(sandbox, ["ACTIVE", "BROKEN", "ACTIVE"], ["running", "0"]) == (0, [])


def test_keep_retries_a_failed_start(sandbox: Sandbox) -> None:
    sandbox.stub("tar", "[[ -e tried ]] || { touch tried; exit 1; }")
    code, done = kept(sandbox, ["ACTIVE"] * 3, ["fresh", "fresh", "0"])
    assert (code, done) == (0, ["copy", "install", "start"])
    assert (sandbox.root / "tried").exists()


def test_keep_ends_with_the_code_of_the_run(sandbox: Sandbox) -> None:
    assert kept(sandbox, ["ACTIVE"], ["2"]) == (2, [])


def test_worker_restarts_a_stopped_run(sandbox: Sandbox) -> None:
    python = sandbox.root / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f"#!{shutil.which('bash')}\n"
        'echo "$@" >> calls; [[ $(wc -l < calls) -ge 3 ]] && exit 2; exit 75\n'
    )
    python.chmod(0o755)
    (sandbox.root / "runs").mkdir()
    sandbox.run("tpu_vm.sh", "worker", "--", *FLAGS)
    assert sandbox.calls() == ["main.py --distributed " + " ".join(FLAGS)] * 3
    assert (sandbox.root / "runs/tpu_vm.ended").read_text() == "2\n"


# Dockerfile


def test_image_copies_what_exists_and_nobody_runs_as_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    let_through = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in let_through
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    for source in copied:
        assert (ROOT / source).exists()
        assert f"!{source.split('/')[0]}" in let_through
    assert {"main.py", "mimetic_jax", "configs", "requirements.txt"} <= set(copied)
    (user,) = [line.split()[1] for line in lines if line.startswith("USER")]
    assert user != "root"
    assert lines.index(f"USER {user}") > max(
        number for number, line in enumerate(lines) if line.startswith("RUN")
    )
    assert any("--constraint requirements.txt" in line for line in lines)
