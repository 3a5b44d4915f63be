"""The steps of a tiny ViT on the CPU backend, against counts that know only its sizes."""

from __future__ import annotations

import collections
import re

import jax
import pytest

from configs.default import default
from mimetic_jax.analysis.chips import H200
from mimetic_jax.analysis.compile import remedy, report
from mimetic_jax.analysis.compile.steps import Compiled, members_at_once, train_step
from mimetic_jax.analysis.compile.target import Target
from mimetic_jax.train.comparison import Comparison

B, D, F, N, L, CLASSES = 32, 16, 64, 17, 2, 10  # the digits: 4 x 4 patches and a class token


@pytest.fixture(scope="module")
def arm():
    config = default()
    config.batch, config.steps, config.eval.batch = B, 4, 8
    config.model.update(width=D, depth=L, heads=2, patch=2, scan=True)
    config.data.augment.crop = 1
    (found,) = Comparison(config).arms.values()
    return found


@pytest.fixture(scope="module")
def compiled(arm):
    return train_step(arm.program, 1)


def by_module(compiled):
    flops, moved = collections.Counter(), collections.Counter()
    for kernel in compiled.kernels:
        flops[kernel.module] += kernel.times * kernel.flops.total
        moved[kernel.module] += kernel.times * kernel.bytes
    return flops, moved


@pytest.mark.slow
def test_products_of_modules(compiled):
    """Each product has two more in the backward pass; that of the pixels has one, and the gradient
    of positions is one.
    """
    flops, _ = by_module(compiled)
    assert flops["attention"] == 3 * L * 2 * B * (4 * N * D * D + 2 * N * N * D)
    assert flops["MLP"] == 3 * L * 2 * B * 2 * N * D * F
    assert flops["other"] == 2 * B * (2 * (N - 1) * 4 * D + 3 * D * CLASSES + N * D)
    assert not flops["norms"] + flops["augmentation"] + flops["optimizer"]


def test_bytes_of_modules(arm, compiled):
    """AdamW reads a parameter, its gradient and its moments, and writes three of these; the CPU's
    compiler fuses not all of it.
    """
    _, moved = by_module(compiled)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(arm.program.shapes.params))
    assert 0.9 < moved["optimizer"] / (7 * 4 * parameters) < 2
    assert moved["augmentation"] > 0
    assert compiled.held > 3 * 4 * parameters


def test_the_report(arm, compiled, monkeypatch):
    """Its numbers are those of the kernels; the evaluation isn't compiled again for this."""
    monkeypatch.setattr(Target, "compiler", "a compiler")
    monkeypatch.setattr(report, "train_step", lambda *arguments: compiled)
    monkeypatch.setattr(report, "test_step", lambda *arguments: compiled)
    text = "\n".join(report._lines(arm, Target.of("h200")))
    moved = sum(kernel.times * kernel.bytes for kernel in compiled.kernels)
    assert f"moves {moved / 2**30:.3g} GiB" in text
    tables = re.findall(r"module .*\n((?: {6}.*\n)+)", text)
    total = sum(float(row.split()[-3]) for row in tables[0].splitlines())
    assert total == pytest.approx(moved / 2**30, abs=0.0005 * 7)


def test_what_fits(arm):
    """Half the batch where all of the memory is activations, and accumulation in two parts."""
    needed = 2 * H200.memory - remedy.held_bytes(arm, 1)
    line = remedy.remedy(arm, Target.of("h200"), needed, 1, training=True)
    assert "the training step needs 282 of 141 GB per device" in line
    assert f"try --config.batch={B // 2}, or --config.accumulate=2, or" in line
    assert line.endswith("or --config.model.remat=True")
    assert "\n" not in line


def test_a_state_that_does_not_fit(arm):
    """No batch is small enough; over eight chips the state is shared."""
    at = Target.of("v5e:2x4")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remedy, "held_bytes", lambda arm, members: 20e9)
        line = remedy.remedy(arm, at, 24e9, 1, training=True)
    assert "--config.batch" not in line
    assert "--config.mesh.fsdp=8" in line


def test_members(arm):
    assert members_at_once(arm.config, arm.program) == 1
    assert Compiled([], 3.0, 4.0, 0.0).bytes == 7.0
