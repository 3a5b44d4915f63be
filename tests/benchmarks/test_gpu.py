"""The measurement of training steps, on models that a CPU trains in a second."""

import os
import pathlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from benchmarks import timing
from benchmarks.gpu import peers, process, throughput
from benchmarks.gpu.__main__ import COMMAND, deit, measure_all
from configs import cifar10_vit, digits_vit, ptb_char
from mimetic_jax.base.errors import InputError
from mimetic_jax.data.text.corpus import describe
from mimetic_jax.models import GPT
from mimetic_jax.rules import paths
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.files import Lines, path_of

STEPS, BATCH = 8, 128
PEAK = 1e12
REAL_CALL = process.call
PEER = {"peer": "PyTorch 9", "seconds_per_step": 0.5, "groups": 3, "peak_memory_bytes": 2**20}


def tiny() -> ConfigDict:
    config = digits_vit.get_config(width=16, depth=1, heads=2, patch=4, steps=STEPS)
    config.seeds = (0,)
    config.max_dispatch = config.log_every = config.checkpoint_every = config.eval.every = 4
    arms = {arm: config.arms[arm] for arm in ("mimetic", "default")}
    config.arms = ConfigDict(arms, sort_keys=False)
    return config


def tiny_text(folder: pathlib.Path) -> ConfigDict:
    config = ptb_char.get_config(width=16, depth=1, heads=2, init=("default",))
    config.data.dir, config.seeds, config.batch = str(folder), (0,), 4
    config.data.length, config.data.valid = 12, 8
    return config


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Measure in this process, in groups of few steps."""
    monkeypatch.setattr(process, "call", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(timing, "STEPS", 6)


def measure(folder: pathlib.Path) -> str:
    """What is said while the tiny model is measured."""
    said: list[str] = []
    measure_all([tiny()], path_of(folder), seconds=0.0, say=said.append)
    return "\n".join(said)


def records(folder: pathlib.Path, name: str) -> list[dict[str, Any]]:
    return Lines(path_of(folder / f"{name}.jsonl")).read()


def test_the_throughput_record(tmp_path, monkeypatch):
    monkeypatch.setattr(throughput, "peak_flops", lambda kind: PEAK)
    monkeypatch.setattr(peers, "not_installed", lambda task: ["torch"])
    said = measure(tmp_path)
    (record,) = records(tmp_path, "throughput")
    assert record["config"] == "digits_vit"
    assert record["images_per_second"] == pytest.approx(BATCH / record["seconds_per_step"])
    assert record["groups"] == 3
    assert record["flops_per_step"] > 1e6
    reached = record["flops_per_step"] / record["seconds_per_step"]
    assert record["mfu"] == pytest.approx(reached / (PEAK * jax.device_count()))
    statistics = jax.devices()[0].memory_stats()
    assert (record["peak_memory_bytes"] is not None) == bool(statistics)
    assert record["device_kind"] == jax.devices()[0].device_kind
    assert record["devices"] == jax.device_count()
    assert record["jax"] == jax.__version__
    assert record["commit"] is None or re.fullmatch(r"[0-9a-f]{40}(-dirty)?", record["commit"])
    assert record["command"] == COMMAND
    assert jax.devices()[0].device_kind in said.splitlines()[0]
    assert "measured before" in measure(tmp_path)
    assert records(tmp_path, "throughput") == [record]


@pytest.fixture
def measured(monkeypatch):
    """Replace the measurement of throughput by 1 000 images per step of a second."""
    record = {"config": "digits_vit", "dtype": "float32", "batch": BATCH, "mfu": None}
    record |= {"images_per_second": 1000.0, "seconds_per_step": 1.0, "peak_memory_bytes": None}
    monkeypatch.setattr(throughput, "throughput", lambda config, seconds: dict(record))


def with_peer(monkeypatch: pytest.MonkeyPatch, *answers: dict[str, Any] | Exception) -> None:
    left = list(answers)

    def peer(config: ConfigDict, info: Any, device: str, seconds: float) -> dict[str, Any]:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(peers, "not_installed", lambda task: [])
    monkeypatch.setattr(peers, "throughput", peer)


@pytest.mark.skipif(jax.device_count() > 1, reason="PyTorch would use one of them")
def test_a_peer_is_measured_beside_ours(tmp_path, monkeypatch, measured):
    with_peer(monkeypatch, PEER)
    assert "1,000 images/s, MFU unknown, 0.50 times PyTorch 9" in measure(tmp_path)
    (record,) = records(tmp_path, "peers")
    assert (record["config"], record["peer"]) == ("digits_vit", "PyTorch 9")
    assert (record["images_per_second"], record["peer_images_per_second"]) == (1000, 2000)
    assert record["ratio"] == 0.5
    assert (record["peer_peak_memory_bytes"], record["command"]) == (2**20, COMMAND)
    assert "measured before: 1,000 images/s, MFU unknown, 0.50 times" in measure(tmp_path)
    assert len(records(tmp_path, "peers")) == len(records(tmp_path, "throughput")) == 1


@pytest.mark.skipif(jax.device_count() > 1, reason="PyTorch would use one of them")
def test_a_failed_peer_is_tried_again(tmp_path, monkeypatch, measured):
    with_peer(monkeypatch, InputError("its process died"), PEER)
    with pytest.raises(InputError, match=r"not everything was done: digits_vit: its process died"):
        measure(tmp_path)
    assert (len(records(tmp_path, "throughput")), records(tmp_path, "peers")) == (1, [])
    measure(tmp_path)
    assert len(records(tmp_path, "peers")) == len(records(tmp_path, "throughput")) == 1


def test_a_peer_that_is_not_installed_is_one_line(tmp_path, monkeypatch, measured):
    monkeypatch.setattr(peers, "not_installed", lambda task: ["torch", "timm"])
    said = measure(tmp_path)
    assert said.count("not compared with PyTorch: torch and timm not installed") == 1
    assert "measured before" in measure(tmp_path)


@pytest.mark.parametrize(
    ("config", "platform", "devices", "why"),
    [
        (ptb_char, "tpu", 1, "doesn't run on a tpu"),
        (ptb_char, "gpu", 8, "one device of several"),
        (ptb_char, "gpu", 1, ""),
        (cifar10_vit, "gpu", 1, "doesn't augment"),
    ],
)
def test_what_a_peer_cannot_do(monkeypatch, config, platform, devices, why):
    monkeypatch.setattr(peers, "not_installed", lambda task: [])
    origin = {"platform": platform, "devices": devices}
    reason = throughput._obstacle(config.get_config(), origin)
    assert (why in reason) if why else reason == ""


def test_random_text_is_of_the_published_size():
    config = tiny_text(pathlib.Path("nowhere"))
    comparison = Comparison(config, lambda line: None)
    text = throughput.synthetic(comparison.arms["default"].program, config)
    assert (text.shape, text.dtype) == ((config.batch, 5_017_482 // config.batch), jnp.int32)
    assert (int(text.min()), int(text.max())) == (0, 49)


def test_streamed_images_are_a_batch_on_the_devices():
    config = deit("Ti")
    config.update_from_flattened_dict({"model.width": 8, "model.depth": 1, "model.heads": 1})
    config.batch = jax.device_count()
    comparison = Comparison(config, lambda line: None)
    pixels, labels = throughput.synthetic(comparison.arms["run"].program, config)
    assert (pixels.shape, pixels.dtype) == ((config.batch, 224, 224, 3), jnp.uint8)
    assert (labels.shape, labels.dtype) == ((config.batch,), jnp.int32)
    assert len(pixels.sharding.device_set) == jax.device_count()


def test_groups_of_steps(monkeypatch):
    """Groups of ten seconds: at least three, five for 45 seconds; the first is warm-up."""
    clock = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])
    asked = []

    def run(steps: int) -> None:
        asked.append(steps)
        clock[0] += 10.0 if len(asked) > 1 else 1000.0

    assert timing.seconds_per_step(run, 0.0) == (10 / timing.STEPS, 3)
    assert asked == 4 * [timing.STEPS]
    assert timing.seconds_per_step(run, 45.0) == (10 / timing.STEPS, 5)


def test_call_runs_in_another_process():
    assert REAL_CALL(os.getpid) != os.getpid()
    with pytest.raises(InputError, match=r"^ValueError: invalid literal.*'x'"):
        REAL_CALL(int, "x")
    with pytest.raises(InputError, match="its process died"):
        REAL_CALL(os._exit, 3)


def in_torch(params: Any) -> dict[str, np.ndarray]:
    """Parameters of our GPT under PyTorch's names and in its layouts."""
    found: dict[str, np.ndarray] = {}
    for path, leaf in paths.flatten(params)[0]:
        array, (*parents, kind) = np.asarray(leaf), path.replace("block_", "blocks/").split("/")
        if "out" in parents:  # [H, K, D] and [D]
            array = array.reshape(-1, array.shape[-1]) if kind == "kernel" else array
        elif "attention" in parents:  # [D, H, K] and [H, K]
            array = array.reshape(len(array), -1) if kind == "kernel" else array.ravel()
        name = {"kernel": "weight", "scale": "weight"}.get(kind, kind)
        found[".".join([*parents, name])] = array.T if kind == "kernel" else array
    for name in [name for name in found if ".query." in name]:
        roles = [found.pop(name.replace("query", role)) for role in ("query", "key", "value")]
        found[name.replace("query", "qkv")] = np.concatenate(roles)
    return found


def test_the_peer_is_the_same_language_model():
    """With the same weights, the same logits and loss."""
    torch = pytest.importorskip("torch")
    from benchmarks.gpu import torch_gpt

    vocab, width, heads, length, valid = 11, 24, 3, 10, 6
    ours = GPT(vocab, width=width, depth=2, heads=heads)
    windows = np.random.default_rng(0).integers(0, vocab, (2, length + 1))
    params = jax.jit(ours.init)(jax.random.key(0), windows[:, :-1])["params"]
    drawn = jax.tree.map(
        lambda leaf: np.random.default_rng(leaf.size).normal(0, 0.2, leaf.shape), params
    )
    theirs = torch_gpt.GPT(vocab, width, 2, heads, length, dropout=0.1).eval()
    named = {name: torch.tensor(array).float() for name, array in in_torch(drawn).items()}
    theirs.load_state_dict(named | {"embedding.weight": named.pop("embedding")})
    expected = ours.apply({"params": drawn}, windows[:, :-1], method="logits")[:, -valid:]
    with torch.no_grad():
        logits = theirs(torch.tensor(windows[:, :-1]), valid)
        loss = theirs.loss(torch.tensor(windows), valid)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    chosen = np.take_along_axis(
        np.asarray(jax.nn.log_softmax(expected)), windows[:, -valid:, None], axis=-1
    )
    assert float(loss) == pytest.approx(-chosen.mean(), rel=1e-5)


@pytest.mark.parametrize("task", ["text", "images"])
def test_a_peer_takes_steps(task, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "compile", lambda function: function)  # takes minutes on a CPU
    if task == "text":
        config, info = tiny_text(tmp_path), describe("ptb_char")
    else:
        pytest.importorskip("timm")
        config = deit("Ti")
        config.batch, config.data.size = 2, 32
        config.model.update(width=12, depth=1, heads=3)
        info = throughput.TASKS[config.task].describe(config)
    record = peers.throughput(config, info, "cpu", 0.0)
    assert re.search(r"PyTorch [\d.+a-z]+, torch\.compile, bfloat16 autocast$", record["peer"])
    assert record["seconds_per_step"] > 0
    assert record["groups"] == 3
