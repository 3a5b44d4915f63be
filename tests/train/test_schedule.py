from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.train.schedule import ScheduleName, make_schedule, plateau_scale, scaled_rate


def test_cosine_ends_at_its_final_rate_and_stays_there_while_cooling_down():
    schedule = make_schedule("cosine", 110, warmup=10, warmup_from=0.2, final=0.1, cooldown=20)
    rates = [float(schedule(1.0, step)) for step in (0, 5, 10, 50, 90, 109)]
    assert rates == pytest.approx([0.2, 0.6, 1, 0.55, 0.1, 0.1])


def test_constant():
    schedule = make_schedule("constant", 10, warmup=4)
    assert [float(schedule(2.0, step)) for step in (0, 2, 4, 9)] == [0, 1, 2, 2]
    assert float(make_schedule("constant", 10)(2.0, 0)) == 2
    assert float(make_schedule("constant", 10, warmup=4, warmup_from=1.0)(2.0, 2)) == 1.5


def test_golden_weight_selection(golden):
    """Two epochs of warm-up and four of cosine, four steps each.

    The original reaches its peak in the last warm-up step and repeats it in the next one; ours is
    there only in the next one, so its warm-up is lower by 7/8.
    """
    expected = golden("schedules")["wsel_iter_lr_6ep_4per_warm2"]
    schedule = make_schedule("cosine", 24, warmup=8, final=1e-6)
    rates = np.asarray(schedule(2e-3, jnp.arange(24)))
    np.testing.assert_allclose(rates[8:], expected[8:], rtol=1e-5)
    np.testing.assert_allclose(rates[:8], expected[:8] * 7 / 8, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "epochs", "per_epoch", "peak", "warmup", "final", "cooldown"),
    [("deit", 310, 7, 1e-3, 5, 1e-5, 10), ("small", 300, 1, 2e-3, 50, 1e-6, 0)],
)
def test_golden_timm_cosine(golden, name, epochs, per_epoch, peak, warmup, final, cooldown):
    """One value an epoch, 310 of them with DeiT's ten epochs of cool-down."""
    steps = {"warmup": warmup * per_epoch, "cooldown": cooldown * per_epoch}
    options = {"warmup_from": 1e-6, "final": final, "steps_per_epoch": per_epoch, **steps}
    schedule = make_schedule("timm_cosine", epochs * per_epoch, **options)
    rates = schedule(peak, jnp.arange(epochs * per_epoch))
    expected = np.repeat(golden("schedules")[f"{name}_epoch_lr"], per_epoch)
    np.testing.assert_allclose(rates, expected, rtol=1e-5, atol=1e-7 * peak)
    assert float(schedule(peak, epochs * per_epoch + 100)) == pytest.approx(final)


@pytest.mark.parametrize(("epochs", "steps_per_epoch"), [(400, 1), (10, 5), (3, 5)])
def test_golden_kentaroy_cosine(golden, epochs, steps_per_epoch):
    """PyTorch's rates as the original asks for them, one value an epoch."""
    steps = epochs * steps_per_epoch
    schedule = make_schedule("kentaroy_cosine", steps, steps_per_epoch=steps_per_epoch)
    expected = np.repeat(golden("kentaroy_rates")[f"epochs_{epochs}"], steps_per_epoch)
    np.testing.assert_allclose(schedule(1e-4, jnp.arange(steps)), expected, atol=1e-11)


def test_kentaroy_cosine_ends_above_its_final_rate():
    schedule = make_schedule("kentaroy_cosine", 3, final=0.2)
    assert [float(schedule(1.0, step)) for step in range(3)] == pytest.approx([1, 0.8, 1])


@pytest.mark.parametrize("name", get_args(ScheduleName))
def test_every_schedule_can_be_traced(name):
    """Its highest rate too: a program trains at any."""
    without = name in ("triangle", "kentaroy_cosine")
    options = {} if without else {"warmup": 4, "warmup_from": 0.1}
    schedule = make_schedule(name, 20, **options)
    steps = jnp.arange(25)
    for peak in (0.5, 1.0):
        traced = jax.jit(jax.vmap(schedule, in_axes=(None, 0)))(jnp.float32(peak), steps)
        np.testing.assert_allclose(traced, [schedule(peak, int(step)) for step in steps], atol=1e-6)
        assert traced.dtype == jnp.float32
        assert 0 <= traced.min() <= traced.max() <= peak + 1e-6


def test_scaled_rate():
    assert scaled_rate(5e-4, 1024, 512, "linear") == 1e-3
    assert scaled_rate(5e-4, 1024, 512, "sqrt") == pytest.approx(5e-4 * 2**0.5, rel=1e-15)
    assert scaled_rate(5e-4, 128, 512, "sqrt") == 2.5e-4
    assert scaled_rate(2e-3, 4096, 0, "sqrt") == 2e-3


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("cosine", {"warmup": 10}, "10 warm-up steps don't fit 10"),
        ("timm_cosine", {"warmup": 4, "cooldown": 6}, "6 cool-down steps don't fit 10 .* 4 of"),
        ("timm_cosine", {"warmup": 4, "steps_per_epoch": 3}, "4 warm-up .* epochs of 3"),
        ("triangle", {"cooldown": 2}, "triangle schedule takes no cool-down: 2 steps"),
        ("triangle", {"final": 0.5}, "triangle schedule takes no final rate: 0.5 given"),
        ("kentaroy_cosine", {"warmup": 3}, "kentaroy_cosine schedule takes no warm-up: 3 steps"),
        ("constant", {"final": 0.5}, "constant schedule takes no final rate: 0.5 given"),
    ],
)
def test_bad_input(name, options, words):
    with pytest.raises(InputError, match=words):
        make_schedule(name, 10, **options)


@pytest.mark.parametrize(("rule", "name"), [("halve", "word"), ("tenth", "char")])
def test_golden_plateau_rules(golden, rule, name):
    arrays = golden("schedules")
    losses = list(arrays["plateau_val"])
    rates = [4 * plateau_scale(losses[:epochs], rule) for epochs in range(len(losses) + 1)]
    np.testing.assert_allclose(rates, arrays[f"plateau_{name}_lr"])
