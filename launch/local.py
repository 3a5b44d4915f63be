"""Several processes of one run on this machine over loopback, as on a cluster. From the root:

    python launch/local.py 2 --devices=4 -- --config=configs/digits_vit.py --workdir=runs/two

SIGTERM and Ctrl-C send SIGTERM to every process. If one fails, the others are stopped, since they
would wait for it forever. Exit code: the worst one, where 75 (stopped: start again) is worse than 0
and better than any other.
"""

import argparse
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

STOPPED = 75
PATIENCE = 10  # seconds; a process that waits in a collective ignores SIGTERM


class Parser(argparse.ArgumentParser):
    """Options, then -- and flags of main.py. Bad input is one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\n")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The options, with the flags of main.py as `flags`."""
        end = arguments.index("--") if "--" in arguments else len(arguments)
        options, unknown = self.parse_known_args(arguments[:end])
        if unknown:
            self.error(f"unknown option {unknown[0]!r}: flags of main.py come after --")
        options.flags = list(arguments[end + 1 :])
        if not options.flags:
            self.error("give the flags of main.py after --")
        return options


def count(text: str) -> int:
    """A positive number."""
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def main() -> int:
    """Run the processes; returns the exit code."""
    parser = Parser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="python launch/local.py N [OPTIONS] -- FLAGS OF MAIN.PY",
    )
    parser.add_argument("processes", metavar="N", type=count, help="number of processes")
    parser.add_argument("--devices", type=count, default=1, help="virtual CPU devices of each (1)")
    parser.add_argument("--port", type=count, help="of the coordinator (a free one)")
    parser.add_argument("--logs", default="runs/local", help="folder of a log each (%(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    options = parser.parse(sys.argv[1:])
    if not pathlib.Path("main.py").is_file():
        parser.error("run this from the root of the repository: there is no main.py here")
    port = options.port or free_port()
    given = os.environ.get("XLA_FLAGS", "")
    devices = f"{given} --xla_force_host_platform_device_count={options.devices}".strip()
    environment = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": devices}
    joined = [f"--coordinator=127.0.0.1:{port}", f"--num_processes={options.processes}"]
    commands = [
        [sys.executable, "main.py", *joined, f"--process_id={process}", *options.flags]
        for process in range(options.processes)
    ]
    logs = [pathlib.Path(options.logs, f"{process}.log") for process in range(options.processes)]
    if options.dry_run:
        settings = [f"{name}={value}" for name, value in environment.items()]
        for command, log in zip(commands, logs, strict=True):
            print(f"{shlex.join(['env', *settings, *command])} > {shlex.quote(str(log))} 2>&1 &")
        return 0
    try:
        logs[0].parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"can't create the log folder {options.logs}: {error.strerror}")
    print(f"{len(commands)} processes x {options.devices} devices: tail -F {logs[0]}", flush=True)
    return run(commands, logs, {**os.environ, **environment})


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def run(commands: list[list[str]], logs: list[pathlib.Path], environment: dict[str, str]) -> int:
    """Wait for all processes; returns the worst exit code."""
    running: dict[int, subprocess.Popen[bytes]] = {}
    codes, stopping, killed_at = [0], False, float("inf")

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        for process in running.values():
            process.terminate()

    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, stop)
    for number, (command, log) in enumerate(zip(commands, logs, strict=True)):
        with log.open("wb") as file:
            running[number] = subprocess.Popen(
                command, stdout=file, stderr=file, env=environment, start_new_session=True
            )
    while running:
        for number, process in list(running.items()):
            if (code := process.poll()) is None:
                continue
            del running[number]
            if stopping and code < 0:  # before main.py handles SIGTERM, or at its end
                code = STOPPED
            code = 128 - code if code < 0 else code  # of a signal, as a shell has it
            codes.append(code)
            if code not in (0, STOPPED):
                lines = logs[number].read_text(errors="replace").splitlines()[-5:]
                said = f"process {number} ended with {code}; the end of {logs[number]}:"
                print(said, *lines, sep="\n", file=sys.stderr)
                if not stopping:
                    killed_at = time.monotonic() + PATIENCE
                    stop()
        if time.monotonic() > killed_at:
            for process in running.values():
                process.kill()
        time.sleep(0.05)
    return max(codes, key=lambda code: (code not in (0, STOPPED), code))


if __name__ == "__main__":
    sys.exit(main())
