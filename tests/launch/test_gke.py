"""Manifests for GKE: what the pods run, on which nodes, and what restarts them."""

import pathlib
import re

import pytest
import yaml

from launch import gke

FLAGS = ("--config=configs/digits_vit.py", "--config.seeds=(0,)")
GPU = ("--name=vit", "--image=i", "--gpu=nvidia-l4")
TPU = ("--name=vit", "--image=i", "--tpu=tpu-v5-lite-podslice", "--topology=4x4")


@pytest.fixture(autouse=True)
def path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The only folder where tools are looked for: no test can reach a cluster."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def manifest(*options: str, flags: tuple[str, ...] = FLAGS) -> dict:
    return yaml.safe_load(gke.manifest(gke.parse([*options, "--", *flags])))


def job_of(filled: dict) -> dict:
    return filled["spec"]["replicatedJobs"][0]["template"]["spec"]


def pod_of(filled: dict) -> dict:
    return job_of(filled)["template"]["spec"]


def test_tpu_slice_discovers_its_processes() -> None:
    filled = manifest(*TPU, "--hosts=4", "--spot")
    assert job_of(filled)["parallelism"] == job_of(filled)["completions"] == 4
    pod = pod_of(filled)
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "4x4",
        "cloud.google.com/gke-spot": "true",
    }
    assert pod["tolerations"][0]["key"] == "cloud.google.com/gke-spot"
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"google.com/tpu": 4}
    assert container["args"] == [*FLAGS, "--distributed"]


def test_gpu_pods_get_their_coordinator() -> None:
    filled = manifest(*GPU, "--hosts=2", "--claim=c")
    assert job_of(filled)["completionMode"] == "Indexed"  # which sets JOB_COMPLETION_INDEX
    pod = pod_of(filled)
    assert pod["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    assert pod["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]
    (container,) = pod["containers"]
    assert container["volumeMounts"] == [{"name": "data", "mountPath": "/mnt/data"}]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert container["args"] == [
        *FLAGS,
        "--coordinator=vit-main-0-0.vit:8476",
        "--num_processes=2",
        "--process_id=$(JOB_COMPLETION_INDEX)",
    ]


@pytest.mark.parametrize("options", [(*GPU, "--chips=1"), TPU])
def test_one_pod_runs_the_flags_alone(options: tuple[str, ...]) -> None:
    (container,) = pod_of(manifest(*options))["containers"]
    assert (container["image"], container["args"]) == ("i", [*FLAGS])


def test_flags_survive_yaml_and_kubernetes() -> None:
    flags = ("--a=$(HOME) & \"x\" 'y' \\", "--b={#}: " + 99 * "x ", "--lr", "Δ")
    # Without quotes kubectl's parser reads these as numbers, booleans or null; PyYAML not all.
    words = ("1e-3", "0o7", "1_000", "y", "N", "on", "null", ".inf")
    filled = gke.manifest(gke.parse([*GPU, "--", *flags, *words]))
    args = pod_of(yaml.safe_load(filled))["containers"][0]["args"]
    assert [flag.replace("$$", "$") for flag in args] == [*flags, *words]
    assert "$$(HOME)" in args[0]  # which Kubernetes turns into $(HOME)
    assert all(f"- '{word}'\n" in filled for word in words)


def test_what_was_stopped_restarts_and_never_bad_input() -> None:
    filled = manifest(*GPU, "--restarts=5")
    pods = job_of(filled)["podFailurePolicy"]["rules"]
    assert pod_of(filled)["restartPolicy"] == "Never"  # which those rules need
    assert job_of(filled)["backoffLimit"] == 0  # one failed pod ends all, and JobSet restarts them
    policy = filled["spec"]["failurePolicy"]
    assert policy["maxRestarts"] == 5

    def action(index: int | None) -> str:
        """JobSet's action after a rule matched, from the message of Kubernetes."""
        message = f"Container main failed matching FailJob rule at index {index}"
        for one in policy["rules"]:
            if any(re.search(p, message) for p in one["onJobFailureMessagePatterns"]):
                return one["action"]
        return "counts"

    exits = [rule.get("onExitCodes", {"values": ["none"]})["values"] for rule in pods]
    index = {code: number for number, codes in enumerate(exits) for code in codes}
    assert pods[index["none"]]["onPodConditions"] == [{"type": "DisruptionTarget"}]  # preempted
    assert action(index["none"]) == action(index[75]) == "RestartJobSetAndIgnoreMaxRestarts"
    assert action(index[2]) == "FailJobSet"
    assert action(index.get(1)) == "counts"


def test_kubectl_gets_what_a_dry_run_prints(
    path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kubectl = path / "kubectl"
    kubectl.write_text('#!/bin/sh\necho "$@"\n/bin/cat\nexit 3\n')
    kubectl.chmod(0o755)
    assert gke.main([*GPU, "--dry-run", "--", *FLAGS]) == 0
    printed = capfd.readouterr().out
    assert gke.main([*GPU, "--", *FLAGS]) == 3
    assert capfd.readouterr().out == f"apply -f -\n{printed}".rstrip()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*GPU, "--", "x"], "kubectl is not installed"),
        (GPU, "give the flags of main.py after --"),
        ([*GPU, "--typo", "--", "x"], "unknown option '--typo'"),
        (["--gpu=g", "--", "x"], "required: --name, --image"),
        (["--name=a", "--image=i", "--", "x"], "--tpu --gpu is required"),
        ([*GPU, "--tpu=t", "--", "x"], "--tpu: not allowed with argument --gpu"),
        ([*TPU[:3], "--", "x"], "--tpu=tpu-v5-lite-podslice needs --topology"),
        *(
            ([*GPU, f"--{given}", "--", "x"], f"{given.partition('=')[2]!r} is not ")
            for given in (
                *("name=A_b", "name=1a", "name=a-", "name=" + "a" * 41, "claim=", 'claim=i"'),
                *("image=i\n  command: [id]", "image=i # x", "image=", "gpu=i: x"),
                *("topology=i x", "topology=4", "hosts=0", "hosts=two", "chips=-1", "restarts="),
            )
        ),
        ([*GPU, "--", "--a=b\nc"], r"flag '--a=b\nc' has a control character"),
        ([*GPU, "--", "--a=\x1b[0m"], "has a control character"),
    ],
)
def test_errors_are_one_line_with_what_was_given(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        gke.main(arguments)
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith("error: ")
    assert words in said.err
