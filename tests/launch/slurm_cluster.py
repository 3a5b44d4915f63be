"""A cluster of Slurm on this machine: its controller, one node of two CPUs, and munge for both."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")


def installed() -> bool:
    """Whether the programs are here, and may be started: daemons of Slurm need root."""
    return os.geteuid() == 0 and all(map(shutil.which, PROGRAMS))


@contextlib.contextmanager
def cluster(folder: pathlib.Path) -> Iterator[dict[str, str]]:
    """The environment in which the commands of Slurm reach a cluster that lasts for the block."""
    host, munge = socket.gethostname(), folder / "munge"
    munge.mkdir(mode=0o700)
    (munge / "key").write_bytes(os.urandom(128))
    (munge / "key").chmod(0o600)
    conf = folder / "slurm.conf"
    conf.write_text(f"""
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={_free_port()}
SlurmdPort={_free_port()}
AuthInfo=socket={munge}/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1,batch_sched_delay=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
""")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    environment = os.environ | {"SLURM_CONF": str(conf)}
    files = {"key": "key", "socket": "socket", "pid": "pid", "log": "log", "seed": "seed"}
    options = [f"--{name}-file={munge}/{file}" for name, file in files.items() if name != "socket"]
    commands = [
        ["munged", "--foreground", "--force", f"--socket={munge}/socket", *options],
        ["slurmctld", "-D", "-f", str(conf)],
        ["slurmd", "-D", "-f", str(conf)],
    ]
    with contextlib.ExitStack() as stack:
        for command in commands:
            log = stack.enter_context((folder / f"{command[0]}.log").open("wb"))
            daemon = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
            stack.callback(_end, daemon)
            time.sleep(1)
        for _ in range(60):
            ask = ["sinfo", "--noheader", "--format=%t"]
            state = subprocess.run(ask, capture_output=True, text=True, env=environment)
            if state.stdout.strip() == "idle":
                break
            time.sleep(1)
        else:
            raise TimeoutError(f"no node: {state.stdout} {state.stderr}, see the logs in {folder}")
        yield environment


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(20)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
