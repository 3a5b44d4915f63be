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
from mimetic_jax.data.feed.feed import Examples, Feed, Sums, place
from mimetic_jax.schemes import Scheme
from mimetic_jax.train.cluster import mesh as meshes
from mimetic_jax.train.config import schedule_of
from mimetic_jax.train.optimizer import make_optimizer
from mimetic_jax.train.state import TrainState, augmentation_key, order_key, stream
from mimetic_jax.train.step import Metrics, make_train_step
from mimetic_jax.train.tasks.task import Evaluation, Task
from mimetic_jax.tree.rewrite import Plan, plan, rewrite
from mimetic_jax.tree.rules import Rule


class Program:
    """Task, feed, optimizer, shardings and the compiled functions of a configuration.

    Nothing here depends on the scheme or the seed: arms that differ in nothing else share one
    program and its compilations.

    Attributes:
        task: the model and its loss.
        feed: where a step's examples come from.
        steps: of the whole training.
        schedule: learning rate of a step.
        leaves: what the parameters are, as arguments of `rewrite` and `check`: rules, the
            configuration's or else the model's own, and numbers of heads.
        sharding_rules: likewise.
        shapes: the state's shapes and dtypes, with shardings: what a checkpoint restores into.
        run_steps: some steps of one run, compiled: see `_run_steps`.
        run_together: the same of several; states, keys and factors have an axis of runs in front.

    Args:
        config: of an arm, checked; only fields that affect programs are read.
        task, feed: of the configuration.
        mesh: of devices.
    """

    def __init__(self, config: ConfigDict, task: Task, feed: Feed, mesh: Mesh) -> None:
        self.mesh, self.batch, self.task, self.feed = mesh, config.batch, task, feed
        self.steps = config.steps or round(config.epochs * self.feed.steps_per_epoch)
        self.schedule = schedule_of(config, self.steps, self.feed.steps_per_epoch)
        traits = self.task.model.traits
        given = (one if isinstance(one, Rule) else Rule(*one) for one in config.rules)
        self.leaves: dict[str, Any] = {
            "rules": tuple(given) or traits.rules,
            "num_heads": config.num_heads or None,
            "num_kv_heads": config.num_kv_heads or None,
        }
        self.sharding_rules = tuple(config.mesh.rules) or traits.sharding
        rates = config.optimizer
        spared = ((traits.no_decay, 0.0),) if rates.no_decay else ()
        self.optimizer = make_optimizer(
            rates.name,
            self.schedule,
            weight_decay=rates.weight_decay,
            betas=rates.betas,
            eps=rates.eps,
            clip=rates.clip,
            decay_rules=(*rates.decay_rules, *spared),
            rate_rules=rates.rate_rules,
            roles=self.leaves["rules"],
        )
        self._ema = config.ema
        self._step = make_train_step(
            self.task.loss, self.optimizer, accumulate=config.accumulate, ema=config.ema
        )
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
        self.run_steps = jax.jit(
            self._run_steps, donate_argnums=0, out_shardings=(placed, self._everywhere)
        )
        # Several runs: the same function, mapped over an axis in front, which "runs" of the mesh
        # shards where it has that axis.
        axis = meshes.RUNS if meshes.RUNS in mesh.shape else None
        self._over_runs = functools.partial(jax.vmap, spmd_axis_name=axis)
        self._by_run = NamedSharding(mesh, P(axis))
        self._placed = jax.tree.map(lambda where: NamedSharding(mesh, P(axis, *where.spec)), placed)
        self.run_together = jax.jit(
            self._over_runs(self._run_steps, in_axes=(0, None, 0, 0, None, 0)),
            donate_argnums=0,
            out_shardings=(self._placed, self._by_run),
        )

    def draw(self, seed: int) -> dict[str, Any]:
        """The model's variables by its own initialization."""
        return self._draw(stream(seed, "init"))

    def initial_state(
        self,
        seed: int,
        scheme: Scheme | tuple[Scheme, ...] = (),
        variables: dict[str, Any] | None = None,
    ) -> TrainState:
        """The state before the first step of a run.

        Args:
            seed: of the run.
            scheme: of the arm, which rewrites the parameters.
            variables: to start from; the model's own draw unless given.
        """
        variables = self.draw(seed) if variables is None else variables
        key, grid = stream(seed, "scheme"), self.task.grid()
        params = rewrite(key, variables["params"], scheme, **self.leaves, grid=grid)
        state = self.state_of({**variables, "params": params}, self._init_optimizer)
        return state.replace(step=place(np.zeros((), np.int32), self._everywhere))

    def state_of(self, variables: dict[str, Any], init_optimizer: Any = None) -> TrainState:
        """The state before the first step, of the model's variables; may be traced."""
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            params=variables["params"],
            model_state={name: tree for name, tree in variables.items() if name != "params"},
            opt_state=(init_optimizer or self.optimizer.init)(variables["params"]),
            ema=jax.tree.map(jnp.copy, variables) if self._ema else None,
        )

    def plan(self, scheme: Scheme | tuple[Scheme, ...]) -> Plan:
        """What a scheme writes of the model's parameters; computes nothing.

        Raises:
            InputError: if it finds nothing to write.
        """
        return plan(self.shapes.params, scheme, **self.leaves, grid=self.task.grid())

    def lanes(self, runs: int) -> int:
        """The length of the axis of so many runs: what the mesh's axis "runs" divides."""
        return runs + -runs % self.mesh.shape.get(meshes.RUNS, 1)

    def keys(self, seeds: Sequence[int]) -> tuple[jax.Array, jax.Array]:
        """The keys of data and dropout that `take` is called with; without an axis of one run."""
        if len(seeds) == 1:
            return stream(seeds[0], "data"), stream(seeds[0], "dropout")
        seeds = [*seeds, *[seeds[-1]] * (self.lanes(len(seeds)) - len(seeds))]
        numbers = jnp.asarray(seeds, jnp.uint32)
        data, dropout = (
            jax.device_put(jax.vmap(functools.partial(stream, name=name))(numbers), self._by_run)
            for name in ("data", "dropout")
        )
        return data, dropout

    def stacked(self, states: Iterable[TrainState], runs: int) -> TrainState:
        """The states of so many runs with an axis in front; of one run, its state as it is."""
        if runs == 1:
            return next(iter(states))
        every = [jax.device_get(state) for state in states]
        every += [every[-1]] * (self.lanes(runs) - runs)
        return jax.tree.map(
            lambda where, *leaves: place(np.stack(leaves), where), self._placed, *every
        )

    def shapes_of(self, runs: int) -> TrainState:
        """Shapes and shardings of `stacked`."""
        if runs == 1:
            return self.shapes
        return jax.tree.map(
            lambda leaf, where: jax.ShapeDtypeStruct(
                (self.lanes(runs), *leaf.shape), leaf.dtype, sharding=where
            ),
            self.shapes,
            self._placed,
        )

    def lane(self, states: TrainState, run: int) -> TrainState:
        """The state of one of several runs, or of one alone."""
        if states.step.ndim == 0:
            return states
        return jax.tree.map(
            lambda leaf, one: jax.device_put(leaf[run], one.sharding), states, self.shapes
        )

    def take(
        self,
        states: TrainState,
        arrays: Any,
        keys: tuple[jax.Array, jax.Array],
        count: int,
        rate_scales: Sequence[float],
    ) -> tuple[TrainState, Metrics]:
        """Take `count` ≤ max_dispatch steps of each run; metrics [K, max_dispatch], or of one run.

        Args:
            states: of `stacked`, which are gone afterwards.
            arrays: of the feed's session.
            keys: of `keys`.
            count: of steps.
            rate_scales: the factor of each run's learning rate.
        """
        if len(rate_scales) == 1:
            scale = jnp.float32(rate_scales[0])
            return self.run_steps(states, arrays, *keys, jnp.int32(count), scale)
        scales = np.resize(np.asarray(rate_scales, np.float32), self.lanes(len(rate_scales)))
        scales = jax.device_put(scales, self._by_run)
        return self.run_together(states, arrays, *keys, jnp.int32(count), scales)

    def evaluate(self, variables: Any, data: Any, runs: int = 1) -> list[Evaluation]:
        """A test of each of so many runs: means over the test set, every example counted once."""
        if runs == 1:
            return [self.task.evaluation(self.feed.test(self.task.sums, variables, data))]
        sums = self.feed.test(self._sums, variables, data)
        return [
            self.task.evaluation({name: values[run] for name, values in sums.items()})
            for run in range(runs)
        ]

    def _sums(self, variables: Any, examples: Examples, weights: jax.Array) -> Sums:
        """`Task.sums` of each of several runs."""
        return self._over_runs(self.task.sums, in_axes=(0, None, None))(
            variables, examples, weights
        )

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

    def _run_steps(
        self,
        state: TrainState,
        arrays: Any,
        data_key: jax.Array,
        dropout_key: jax.Array,
        count: jax.Array,
        rate_scale: jax.Array | float = 1.0,
    ) -> tuple[TrainState, Metrics]:
        """`count` ≤ max_dispatch steps in one dispatch; metrics [max_dispatch], NaN beyond count.

        The count is traced: chunks of any length share one compilation. So is the factor of the
        learning rate, which a plateau rule may lower.
        """
        shared = self.feed.begin(arrays, order_key(data_key), state.step)

        def one(index: jax.Array, carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            state, history = carry
            examples = self.feed.examples(arrays, shared, state.step)
            with jax.named_scope("augmentation"):
                batch = self.task.prepare(augmentation_key(data_key), state.step, examples)
            batch = jax.lax.with_sharding_constraint(batch, self._batched)
            dropout = jax.random.fold_in(dropout_key, state.step)
            state, metrics = self._step(state, batch, dropout, rate_scale)
            return state, jax.tree.map(lambda h, m: h.at[index].set(m), history, metrics)

        _, (metrics, _) = jax.eval_shape(
            self.task.loss, state.params, state.model_state, self.task.batch_shapes(), dropout_key
        )
        names = (*metrics, "grad_norm")
        history = {name: jnp.zeros(self.feed.max_dispatch) for name in names}
        return jax.lax.fori_loop(0, count, one, (state, history))


def _cpu() -> jax.Device | None:
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS leaves it out
        return None
