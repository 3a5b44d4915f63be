"""What a run executes on the devices, compiled once for all arms and seeds that share it."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from ml_collections import ConfigDict

from mimetic_jax.base.chips import peak_flops
from mimetic_jax.base.errors import InputError
from mimetic_jax.data.feed.feed import Feed, place
from mimetic_jax.rules.rule import Rule
from mimetic_jax.schemes import Scheme, as_tuple
from mimetic_jax.schemes.base import used_by
from mimetic_jax.train.cluster import mesh as meshes
from mimetic_jax.train.config import schedule_of
from mimetic_jax.train.optimizer import make_optimizer
from mimetic_jax.train.state import TrainState, augmentation_key, order_key, stream
from mimetic_jax.train.step import Metrics, make_train_step
from mimetic_jax.train.tasks.task import Evaluation, Task
from mimetic_jax.tree.rewrite import Plan, plan, rewrite


class Program:
    """Task, feed, optimizer, shardings and the compiled functions of a configuration.

    Nothing here depends on the scheme, the seed or the highest learning rate: arms that differ in
    nothing else share one program and its compilations. Of a configuration only fields that affect
    programs are read.

    Attributes:
        schedule: the learning rate, a function of the highest rate and the step.
        rewrite_options: what the parameters are, as arguments of `rewrite` and `check`: rules, the
            configuration's or else the model's own, and numbers of heads.
        shapes: the state's shapes and dtypes, with shardings: what a checkpoint restores into.
        compiled_dispatch: `dispatch`, compiled.
        by_runs: the programs of several runs at once that `together` made of this one.
    """

    def __init__(self, config: ConfigDict, task: Task, feed: Feed, mesh: Mesh) -> None:
        self.mesh, self.batch, self.task, self.feed = mesh, config.batch, task, feed
        self.steps = config.steps or round(config.epochs * self.feed.steps_per_epoch)
        self.schedule = schedule_of(config, self.steps, self.feed.steps_per_epoch)
        traits = self.task.model.traits
        given = (rule if isinstance(rule, Rule) else Rule(*rule) for rule in config.rules)
        self.rewrite_options: dict[str, Any] = {
            "rules": tuple(given) or traits.rules,
            "num_heads": config.num_heads or None,
            "num_kv_heads": config.num_kv_heads or None,
        }
        self.sharding_rules = traits.sharding
        rates = config.optimizer
        spared = ((traits.no_decay, 0.0),) if rates.no_decay else ()
        self.optimizer = make_optimizer(
            rates.name,
            weight_decay=rates.weight_decay,
            eps=rates.eps,
            clip=rates.clip,
            decay_rules=spared,
            rate_rules=rates.rate_rules,
            roles=self.rewrite_options["rules"],
        )
        self._ema = config.ema
        self._step = make_train_step(self.task.loss, self.optimizer, config.ema)
        shapes = jax.eval_shape(lambda key: self.state_of(self.task.init(key)), jax.random.key(0))
        placed = meshes.shardings(shapes, mesh, self.sharding_rules)
        if (fsdp := mesh.shape["fsdp"]) > 1 and not any(
            "fsdp" in where.spec for where in jax.tree.leaves(placed.params)
        ):
            raise InputError(
                f"mesh.fsdp {fsdp} divides no parameter that the sharding rules name: every device "
                "would hold all of them, as with mesh.data"
            )
        self.shapes = jax.tree.map(
            lambda shape, where: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=where),
            shapes,
            placed,
        )
        self._everywhere = NamedSharding(mesh, P())
        self._batched = NamedSharding(mesh, meshes.BATCH)
        self._draw = jax.jit(self.task.init, out_shardings=placed.variables)
        self._init_optimizer = jax.jit(self.optimizer.init, out_shardings=placed.opt_state)
        self.compiled_dispatch = jax.jit(
            self.dispatch, donate_argnums=0, out_shardings=(placed, self._everywhere)
        )
        self.by_runs: dict[int, Any] = {}

    def draw(self, seed: int) -> dict[str, Any]:
        """Draw the model's variables by its own initialization."""
        return self._draw(stream(seed, "init"))

    def initial_state(
        self,
        seed: int,
        scheme: Scheme | tuple[Scheme, ...] = (),
        variables: dict[str, Any] | None = None,
        **statistics: Any,
    ) -> TrainState:
        """Return the state before the first step of a run; the model draws missing variables.
        `statistics` is what the scheme takes from the training data, of `Task.data_statistics`."""
        variables = self.draw(seed) if variables is None else variables
        options = self.options_for(scheme, **statistics)
        params = rewrite(stream(seed, "scheme"), variables["params"], scheme, **options)
        state = self.state_of({**variables, "params": params}, self._init_optimizer)
        return state.replace(step=place(np.zeros((), np.int32), self._everywhere))

    def state_of(self, variables: dict[str, Any], init_optimizer: Any = None) -> TrainState:
        """Return the state before the first step, of the model's variables; may be traced."""
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            params=variables["params"],
            model_state={name: tree for name, tree in variables.items() if name != "params"},
            opt_state=(init_optimizer or self.optimizer.init)(variables["params"]),
            ema=jax.tree.map(jnp.copy, variables) if self._ema else None,
        )

    def plan(self, scheme: Scheme | tuple[Scheme, ...]) -> Plan:
        """List what a scheme writes of the model's parameters; computes nothing."""
        statistics = self.task.data_statistics(as_tuple(scheme))
        return plan(self.shapes.params, scheme, **self.options_for(scheme, **statistics))

    def options_for(self, scheme: Scheme | tuple[Scheme, ...], **statistics: Any) -> dict[str, Any]:
        """Return what `rewrite` takes for a scheme, with the grid if the scheme reads it."""
        grid = self.task.grid() if "grid" in used_by(as_tuple(scheme)) else None
        return {**self.rewrite_options, "grid": grid, **statistics}

    def keys(self, seeds: Sequence[int]) -> tuple[jax.Array, jax.Array]:
        """Return the keys of data and dropout that `run_steps` is called with, of one seed."""
        (seed,) = seeds
        return stream(seed, "data"), stream(seed, "dropout")

    def stack(self, states: Iterable[TrainState]) -> TrainState:
        """Return the states of as many runs as this trains, as one: of a single run, its own."""
        (state,) = states
        return state

    def unstack(self, states: TrainState) -> list[TrainState]:
        """Undo `stack`."""
        return [states]

    def run_steps(
        self,
        states: TrainState,
        arrays: Any,
        keys: tuple[jax.Array, jax.Array],
        count: int,
        rates: np.ndarray,
    ) -> tuple[TrainState, Metrics]:
        """Take `count` ≤ max_dispatch steps from the states of `stack`, which are gone afterwards,
        at the rates [1, 2] of `Journal`; metrics [max_dispatch]."""
        return self.compiled_dispatch(states, arrays, *keys, jnp.int32(count), rates[0])

    def evaluate(self, variables: Any, data: Any) -> list[Evaluation]:
        """Test each run: means over the test set, every example counted once."""
        return [self.task.evaluation(self.feed.test(self.task.sums, variables, data))]

    @functools.cached_property
    def flops_per_step(self) -> float:
        """FLOPs of one step's forward and backward pass, as XLA counts them, not optimized."""
        # Loops count once, however often they run: counted is the same step without any.
        task = self.task.unrolled()
        key = jax.eval_shape(lambda: jax.random.key(0))
        variables = jax.eval_shape(task.init, key)
        params = variables.pop("params")
        gradient = jax.jit(jax.grad(task.loss, has_aux=True))
        # Counted on the CPU, as GPUs and TPUs report nothing before they compile; but lowered for a
        # TPU: the CPU's depthwise convolutions are products with more arithmetic.
        with jax.default_device(_cpu()):
            traced = gradient.trace(params, variables, task.batch_shapes(), key)
            lowered = traced.lower(lowering_platforms=("tpu",))
            cost = lowered.cost_analysis() or {}
        return float(cost.get("flops", math.nan))

    @functools.cached_property
    def share_of_peak(self) -> float:
        """The part of its devices' peak that an example per second takes; 0 if no peak is known."""
        peak = peak_flops(self.mesh.devices.flat[0].device_kind)
        if peak is None:
            return 0.0
        return self.flops_per_step / self.task.per_step / (peak * self.mesh.size)

    def dispatch(
        self,
        state: TrainState,
        arrays: Any,
        data_key: jax.Array,
        dropout_key: jax.Array,
        count: jax.Array,
        rates: jax.Array,
    ) -> tuple[TrainState, Metrics]:
        """Take `count` ≤ max_dispatch steps in a dispatch; metrics [max_dispatch], NaN beyond.

        The count is traced: chunks of any length share one compilation. So are the rates: the
        highest of the schedule, and its factor.
        """
        peak, factor = rates
        shared = self.feed.begin(arrays, order_key(data_key), state.step)

        def step(index: jax.Array, carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            state, history = carry
            examples = self.feed.examples(arrays, shared, state.step)
            with jax.named_scope("augmentation"):
                batch = self.task.prepare(augmentation_key(data_key), state.step, examples)
            batch = jax.lax.with_sharding_constraint(batch, self._batched)
            dropout = jax.random.fold_in(dropout_key, state.step)
            rate = factor * self.schedule(peak, state.step)
            state, metrics = self._step(state, batch, dropout, rate)
            return state, jax.tree.map(lambda h, m: h.at[index].set(m), history, metrics)

        _, (metrics, _) = jax.eval_shape(
            self.task.loss, state.params, state.model_state, self.task.batch_shapes(), dropout_key
        )
        names = (*metrics, "grad_norm")
        history = {name: jnp.zeros(self.feed.max_dispatch) for name in names}
        return jax.lax.fori_loop(0, count, step, (state, history))


def _cpu() -> jax.Device | None:
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS leaves it out
        return None
