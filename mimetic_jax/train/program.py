"""What a run executes on the devices, compiled once for all arms and seeds that share it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from ml_collections import ConfigDict

from mimetic_jax.errors import InputError
from mimetic_jax.rewrite import rewrite
from mimetic_jax.schemes import Scheme
from mimetic_jax.train.cluster import mesh as meshes
from mimetic_jax.train.config import schedule_of
from mimetic_jax.train.kinds import kind_of
from mimetic_jax.train.optimizer import make_optimizer
from mimetic_jax.train.state import TrainState, stream
from mimetic_jax.train.step import Metrics, make_train_step
from mimetic_jax.train.tasks.task import Evaluation


class Program:
    """Task, optimizer, shardings and the compiled functions of a configuration.

    Nothing here depends on the scheme or the seed: arms that differ in nothing else share one
    program and its compilations.

    Attributes:
        task: the model and its loss.
        feed: where a step's examples come from.
        steps: total optimizer steps.
        schedule: learning rate of a step.
        shapes: the state's shapes and dtypes, with shardings: what a checkpoint restores into.
    """

    def __init__(self, config: ConfigDict, info: Any, mesh: Mesh) -> None:
        self.mesh, self.batch = mesh, config.batch
        self.task, self.feed = kind_of(config).build(config, info, mesh)
        self.steps = config.steps or round(config.epochs * self.feed.steps_per_epoch)
        self.schedule = schedule_of(config, self.steps, self.feed.steps_per_epoch)
        rates = config.optimizer
        self.optimizer = make_optimizer(
            rates.name,
            self.schedule,
            weight_decay=rates.weight_decay,
            betas=rates.betas,
            eps=rates.eps,
            clip=rates.clip,
            decay_rules=rates.decay_rules,
            rate_rules=rates.rate_rules,
        )
        if rates.skip_nonfinite:
            self.optimizer = optax.apply_if_finite(self.optimizer, rates.skip_nonfinite)
        self._ema = config.ema
        self._step = make_train_step(
            self.task.loss, self.optimizer, accumulate=config.accumulate, ema=config.ema
        )
        shapes = jax.eval_shape(self._init, jax.random.key(0))
        placed = meshes.shardings(shapes, mesh, config.mesh.rules)
        if (fsdp := mesh.shape["fsdp"]) > 1 and not any(
            "fsdp" in where.spec for where in jax.tree.leaves(placed.params)
        ):
            raise InputError(
                f"mesh.fsdp {fsdp} divides no parameter that mesh.rules cut: every device would "
                "hold all of them, as with mesh.data"
            )
        self.shapes = jax.tree.map(
            lambda shape, where: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=where),
            shapes,
            placed,
        )
        everywhere, self._batched = NamedSharding(mesh, P()), NamedSharding(mesh, meshes.BATCH)
        self._everywhere = everywhere
        self._init_params = jax.jit(self.task.init, out_shardings=placed.params)
        self._init_optimizer = jax.jit(self.optimizer.init, out_shardings=placed.opt_state)
        self.run_steps = jax.jit(
            self._run_steps, donate_argnums=0, out_shardings=(placed, everywhere)
        )

    def initial_state(
        self,
        seed: int,
        scheme: Scheme | tuple[Scheme, ...],
        warm: Callable[[Any], Any] = lambda params: params,
    ) -> TrainState:
        """The state before the first step: the model's own draw, rewritten by the scheme.

        Args:
            seed: of the run.
            scheme: of the arm.
            warm: what happens to the parameters in between, such as a `warm_start`.
        """
        params = warm(self._init_params(stream(seed, "init")))
        params = rewrite(stream(seed, "scheme"), params, scheme, grid=self.task.grid())
        return TrainState(
            step=meshes.place(np.zeros((), np.int32), self._everywhere),
            params=params,
            opt_state=self._init_optimizer(params),
            ema=jax.tree.map(jnp.copy, params) if self._ema else None,
        )

    def test(self, params: Any, data: Any) -> Evaluation:
        """Means over the test set, every example counted once."""
        return self.task.evaluation(self.feed.test(params, data))

    def describe(self) -> dict[str, Any]:
        """Parameters, FLOPs of a step and bytes per device, without compiling or computing."""
        key = jax.eval_shape(lambda: jax.random.key(0))
        # Loops count once, however often they run: counted is the same step without any.
        task = self.task.unrolled()
        params = jax.eval_shape(task.init, key)
        gradient = jax.jit(jax.grad(task.loss, has_aux=True))
        # Counted by the CPU backend: those of GPUs and TPUs tell nothing before compiling.
        with jax.default_device(_cpu()):
            cost = gradient.lower(params, task.batch_shapes(), key).cost_analysis() or {}

        def bytes_per_device(tree: Any) -> int:
            return sum(
                int(np.prod(leaf.sharding.shard_shape(leaf.shape))) * leaf.dtype.itemsize
                for leaf in jax.tree.leaves(tree)
            )

        return {
            "parameters": sum(leaf.size for leaf in jax.tree.leaves(self.shapes.params)),
            "flops_per_step": float(cost.get("flops", float("nan"))),
            "parameter_bytes": bytes_per_device((self.shapes.params, self.shapes.ema)),
            "optimizer_bytes": bytes_per_device(self.shapes.opt_state),
            "data_bytes": self.feed.data_bytes(),
        }

    def _init(self, key: jax.Array) -> TrainState:
        params = self.task.init(key)
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            params=params,
            opt_state=self.optimizer.init(params),
            ema=params if self._ema else None,
        )

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
        shared = self.feed.begin(arrays, data_key, state.step)
        prepare_key = jax.random.fold_in(data_key, 1)

        def one(index: jax.Array, carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            state, history = carry
            examples = self.feed.examples(arrays, shared, state.step)
            batch = self.task.prepare(prepare_key, state.step, examples)
            batch = jax.lax.with_sharding_constraint(batch, self._batched)
            dropout = jax.random.fold_in(dropout_key, state.step)
            state, metrics = self._step(state, batch, dropout, rate_scale)
            return state, jax.tree.map(lambda h, m: h.at[index].set(m), history, metrics)

        names = (*self.task.metric_names(), "grad_norm")
        history = {name: jnp.full(self.feed.max_dispatch, jnp.nan) for name in names}
        return jax.lax.fori_loop(0, count, one, (state, history))


def _cpu() -> jax.Device | None:
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS leaves it out
        return None
