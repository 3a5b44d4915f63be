"""A run on GKE, on a TPU slice or GPU nodes, which need JobSet 0.10.1 or newer. From the root:

    python launch/gke.py --name=NAME --image=IMAGE --tpu=TYPE --topology=4x4 -- FLAGS OF MAIN.PY
    python launch/gke.py --name=NAME --image=IMAGE --gpu=TYPE [OPTIONS] -- FLAGS OF MAIN.PY

IMAGE is built from the Dockerfile. The manifest is applied with kubectl.

Follow the run: kubectl logs -f -l jobset.sigs.k8s.io/jobset-name=NAME
End the run:    kubectl delete jobset NAME
"""

from __future__ import annotations

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import yaml

# Run as a script, Python finds the modules of launch/ alone.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from launch import local
from mimetic_jax.errors import InputError
from mimetic_jax.exits import reported

SHAPES = {
    # Kubernetes adds suffixes to the name, and the result must fit into 63 characters.
    "name": ("[a-z]([a-z0-9-]{0,38}[a-z0-9])?", "at most 40 of a-z, 0-9 and -, a letter first"),
    "image": ("[A-Za-z0-9][A-Za-z0-9._/:-]*(@sha256:[0-9a-f]+)?", "an image"),
    "tpu": ("[a-z][a-z0-9-]*", "an accelerator"),
    "gpu": ("[a-z][a-z0-9-]*", "an accelerator"),
    "topology": ("[0-9]+(x[0-9]+)+", "a topology such as 4x4"),
    "restarts": ("0|[1-9][0-9]*", "a number of restarts"),
    "claim": ("[a-z0-9]([a-z0-9.-]*[a-z0-9])?", "the name of a PersistentVolumeClaim"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Apply or print the manifest; returns the exit code, or exits with that of an error."""
    with reported():
        options = parse(sys.argv[1:] if arguments is None else arguments)
        if options.dry_run:
            print(manifest(options))
            return 0
        if not shutil.which("kubectl"):
            raise InputError("kubectl is not installed: --dry-run prints the manifest")
        apply = ["kubectl", "apply", "-f", "-"]
        return subprocess.run(apply, input=manifest(options), text=True).returncode


class _Parser(local.Parser):
    def error(self, message: str) -> NoReturn:
        raise InputError(message)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse and check the options, with the flags of main.py.

    Raises:
        InputError: for an option or flag that a manifest can't hold.
    """
    parser = _Parser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="python launch/gke.py OPTIONS -- FLAGS OF MAIN.PY",
        allow_abbrev=False,
    )
    kind = parser.add_mutually_exclusive_group(required=True)
    parser.add_argument("--name", required=True, help="of the run")
    parser.add_argument("--image", required=True, help="in a registry that the cluster reads")
    kind.add_argument("--tpu", help="accelerator of the node pool, such as tpu-v5-lite-podslice")
    kind.add_argument("--gpu", help="accelerator of the node pool, such as nvidia-h100-80gb")
    parser.add_argument("--topology", help="of the TPU slice, such as 4x4")
    parser.add_argument("--hosts", type=local.count, default=1, help="pods, one per node (1)")
    parser.add_argument("--chips", type=local.count, help="per pod (8 for --gpu, 4 for --tpu)")
    parser.add_argument("--spot", action="store_true", help="use a spot node pool")
    parser.add_argument("--restarts", default="3", help="after failures but for preemption (3)")
    parser.add_argument("--claim", help="a PersistentVolumeClaim, mounted at /mnt/data")
    parser.add_argument("--dry-run", action="store_true", help="print the manifest, do nothing")
    options = parser.parse(arguments)
    for name, (pattern, words) in SHAPES.items():
        value = getattr(options, name)
        if value is not None and not re.fullmatch(pattern, value):
            raise InputError(f"--{name} {value!r} is not {words}")
    if options.tpu and not options.topology:
        raise InputError(f"--tpu={options.tpu} needs --topology")
    for flag in options.flags:
        if re.search(r"[\x00-\x1f\x7f-\x9f]", flag):
            raise InputError(f"flag {flag!r} has a control character")
    return options


def manifest(options: argparse.Namespace) -> str:
    """The JobSet as a document of YAML."""
    return yaml.dump(
        jobset(options), Dumper=_Dumper, explicit_start=True, sort_keys=False, width=sys.maxsize
    ).rstrip()


class _Dumper(yaml.SafeDumper):
    """Quotes what kubectl's parser, unlike PyYAML, reads as a number or boolean, as 1e-3 or y."""


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile("[-+.0-9]|[ynYN]$"), list("-+.0123456789ynYN")
)


def jobset(options: argparse.Namespace) -> dict[str, Any]:
    """The JobSet of a run.

    All its processes restart together, from the last checkpoint. The first podFailurePolicy rule
    that a failed pod matches decides what follows; JobSet reads its index from the failure message.
    Preemption and exit code 75 never count, exit code 2 (bad input) ends the run at once, anything
    else counts against maxRestarts.
    """

    def exited(code: int) -> dict[str, Any]:
        codes = {"containerName": "main", "operator": "In", "values": [code]}
        return {"action": "FailJob", "onExitCodes": codes}

    def after(rules: str, name: str, action: str) -> dict[str, Any]:
        return {
            "name": name,
            "action": action,
            "onJobFailureReasons": ["PodFailurePolicy"],
            "onJobFailureMessagePatterns": [f"matching FailJob rule at index {rules}$"],
        }

    preempted = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}
    job = {
        "parallelism": options.hosts,
        "completions": options.hosts,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [preempted, exited(local.STOPPED), exited(2)]},
        "template": {"spec": _pod(options)},
    }
    failure_policy = {
        "maxRestarts": int(options.restarts),
        "rules": [
            after("[01]", "preempted", "RestartJobSetAndIgnoreMaxRestarts"),
            after("2", "badinput", "FailJobSet"),
        ],
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": options.name},
        "spec": {
            "failurePolicy": failure_policy,
            "replicatedJobs": [{"name": "main", "replicas": 1, "template": {"spec": job}}],
        },
    }


def _pod(options: argparse.Namespace) -> dict[str, Any]:
    args = [flag.replace("$", "$$") for flag in options.flags]  # Kubernetes expands $(NAME)
    if options.tpu:
        resource, chips = "google.com/tpu", options.chips or 4
        selector = {
            "cloud.google.com/gke-tpu-accelerator": options.tpu,
            "cloud.google.com/gke-tpu-topology": options.topology,
        }
        args += ["--distributed"] if options.hosts > 1 else []
    else:
        resource, chips = "nvidia.com/gpu", options.chips or 8
        selector = {"cloud.google.com/gke-accelerator": options.gpu}
        if options.hosts > 1:
            args += [
                f"--coordinator={options.name}-main-0-0.{options.name}:8476",
                f"--num_processes={options.hosts}",
                "--process_id=$(JOB_COMPLETION_INDEX)",
            ]
    container = {
        "name": "main",
        "image": options.image,
        "args": args,
        "resources": {"limits": {resource: chips}},
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 120,
        "nodeSelector": selector,
        "containers": [container],
    }
    if options.spot:
        spot = {"key": "cloud.google.com/gke-spot", "value": "true"}
        selector[spot["key"]] = spot["value"]
        pod["tolerations"] = [{**spot, "operator": "Equal", "effect": "NoSchedule"}]
    if options.claim:
        container["volumeMounts"] = [{"name": "data", "mountPath": "/mnt/data"}]
        pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": options.claim}}]
    return pod


if __name__ == "__main__":
    sys.exit(main())
