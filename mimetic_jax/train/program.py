"""What a run executes on the devices, compiled once for all arms and seeds that share it."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from ml_collections import ConfigDict

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
        run_steps: some steps of one run, see `_run_steps`.
        init_together: variables of several runs as the model draws them, of a key each.
        states_of: their states before the first step, of their variables.
        by_member: the sharding of an array with an entry per run.
        stack: the states of runs, one after the other, as `together` takes them.
        member: the state of one of them, by its index.

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
        everywhere, self._batched = NamedSharding(mesh, P()), NamedSharding(mesh, meshes.BATCH)
        self._everywhere = everywhere
        self._init_variables = jax.jit(self.task.init, out_shardings=placed.variables)
        self._init_optimizer = jax.jit(self.optimizer.init, out_shardings=placed.opt_state)
        self.run_steps = jax.jit(
            self._run_steps, donate_argnums=0, out_shardings=(placed, everywhere)
        )
        # Several runs at once. Where the mesh has an axis for them, each device has its own.
        axis = meshes.MEMBERS if meshes.MEMBERS in mesh.shape else None
        self._over_members = functools.partial(jax.vmap, spmd_axis_name=axis)
        self.by_member = NamedSharding(mesh, P(axis))
        stacked = jax.tree.map(lambda where: NamedSharding(mesh, P(axis, *where.spec)), placed)
        self._stacked = stacked
        self._run_together = jax.jit(
            self._over_members(self._run_steps, in_axes=(0, None, 0, 0, None, 0)),
            donate_argnums=0,
            out_shardings=(stacked, self.by_member),
        )
        self.stack = jax.jit(
            lambda states: jax.tree.map(lambda *leaves: jnp.stack(leaves), *states),
            out_shardings=stacked,
        )
        self.member = jax.jit(
            lambda states, index: jax.tree.map(lambda leaf: leaf[index], states),
            out_shardings=placed,
        )
        self.init_together = jax.jit(lambda keys: jax.lax.map(self.task.init, keys))
        self.states_of = jax.jit(jax.vmap(self.state_of))
        self._together: dict[int, Any] = {}

    def draw(self, seed: int) -> dict[str, Any]:
        """The model's variables by its own initialization."""
        return self._init_variables(stream(seed, "init"))

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
        params = self.rewritten(stream(seed, "scheme"), variables["params"], scheme)
        state = self.state_of({**variables, "params": params}, self._init_optimizer)
        return state.replace(step=place(np.zeros((), np.int32), self._everywhere))

    def rewritten(self, key: jax.Array, params: Any, scheme: Scheme | tuple[Scheme, ...]) -> Any:
        """The parameters as the scheme starts them; may be traced."""
        return rewrite(key, params, scheme, **self.leaves, grid=self.task.grid())

    def state_of(self, variables: dict[str, Any], init_optimizer: Any = None) -> TrainState:
        """The state before the first step, of the model's variables; may be traced."""
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            params=variables["params"],
            model_state=_without_params(variables),
            opt_state=(init_optimizer or self.optimizer.init)(variables["params"]),
            ema=jax.tree.map(jnp.copy, variables) if self._ema else None,
        )

    def plan(self, scheme: Scheme | tuple[Scheme, ...]) -> Plan:
        """What a scheme writes of the model's parameters; computes nothing.

        Raises:
            InputError: if it finds nothing to write.
        """
        return plan(self.shapes.params, scheme, **self.leaves, grid=self.task.grid())

    def test(self, variables: Any, data: Any) -> Evaluation:
        """Means over the test set, every example counted once."""
        return self.task.evaluation(self.feed.test(self.task.count, variables, data))

    def together(self, members: int, arrays: Any) -> Any:
        """`run_steps` of so many runs at once, compiled: its memory can be asked for.

        States, keys, factors of the learning rate and metrics have a leading axis, and each run is
        what `run_steps` makes of it.

        Args:
            members: C.
            arrays: of the feed's session.
        """
        if members not in self._together:
            self._together[members] = self.lower_together(members, arrays).compile()
        return self._together[members]

    def lower_together(self, members: int, arrays: Any) -> jax.stages.Lowered:
        """`together` before it is compiled."""
        key = self.stacked(members, jax.eval_shape(lambda: jax.random.key(0)))
        states = jax.tree.map(
            lambda leaf, where: jax.ShapeDtypeStruct(
                (members, *leaf.shape), leaf.dtype, sharding=where
            ),
            self.shapes,
            self._stacked,
        )
        return self._run_together.lower(
            states,
            arrays,
            key,
            key,
            jax.ShapeDtypeStruct((), jnp.int32),
            self.stacked(members, jax.ShapeDtypeStruct((), jnp.float32)),
        )

    def stacked(self, members: int, tree: Any) -> Any:
        """The shapes of so many runs' arrays, of the shapes of one run's."""
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(
                (members, *leaf.shape), leaf.dtype, sharding=self.by_member
            ),
            tree,
        )

    def test_together(self, variables: Any, data: Any) -> list[Evaluation]:
        """`test` of each run of stacked variables."""
        sums = self.feed.test(self.count_together, variables, data)
        members = len(next(iter(sums.values())))
        return [
            self.task.evaluation({name: values[member] for name, values in sums.items()})
            for member in range(members)
        ]

    def count_together(self, variables: Any, examples: Examples, weights: jax.Array) -> Sums:
        """The sums that `test` takes over a batch, of each run of stacked variables."""
        count = self._over_members(self.task.count, in_axes=(0, None, None))
        return count(variables, examples, weights)

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


def _without_params(variables: dict[str, Any]) -> dict[str, Any]:
    return {name: tree for name, tree in variables.items() if name != "params"}
