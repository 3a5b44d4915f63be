"""The base class of schemes: what it checks, its registry, and what it depends on."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self, TypeAlias

import jax
import numpy as np

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.base.typed import check_fields, converted, field_types, shown
from mimetic_jax.schemes.block import Block, Context, MissingRole
from mimetic_jax.schemes.network import Network
from mimetic_jax.weights.checks import ANY_SIGN, check_room, is_finite

REGISTRY: dict[str, type[Scheme]] = {}
"""Every scheme by its name."""


_PER_LAYER = "a value per layer"

PerLayer: TypeAlias = Annotated[float | tuple[float, ...] | Callable[[float], float], _PER_LAYER]
"""The type of a field that may depend on depth: `Scheme.at` resolves it for a layer."""


@dataclasses.dataclass(frozen=True)
class Interpolated:
    """Numbers from the first layer to the last, for a network of any depth: a function of depth.

    Between them it is linear. Unlike other functions it can be stored.

    Attributes:
        values: a number per layer of a network, in their order.

    Example:
        >>> Interpolated((0.0, 1.0, 3.0))(0.75)
        2.0
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        values = converted("values", tuple[Annotated[float, ANY_SIGN], ...], self.values)
        if not values:
            raise InputError("values () are not one or more numbers")
        object.__setattr__(self, "values", values)  # an array has no hash

    def __call__(self, depth: float) -> float:
        last = len(self.values) - 1
        return float(np.interp(depth * last, np.arange(last + 1), self.values))


def for_layer(name: str, value: Any, layer: int, num_layers: int) -> Any:
    """Return the value of a field of type `PerLayer` in a layer."""
    if isinstance(value, tuple):
        if len(value) != num_layers:
            raise InputError(f"{name} has {len(value)} values for {num_layers} layers")
        return value[layer]
    if callable(value):
        _check_of_depth(name, value)
        return value(layer / max(num_layers - 1, 1))
    return value


def _check_of_depth(name: str, function: Callable[..., Any]) -> None:
    """Raise InputError for a function that doesn't take one number, by its signature if it has
    one."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(0.0)
    except TypeError as error:
        raise InputError(
            f"{name} must be a function of one number, the relative depth from 0 to 1; got one of "
            f"{signature} ({error})"
        ) from error


def is_per_layer(annotation: Any) -> bool:
    """Tell whether a field's declared type is `PerLayer`, also with a range or beside None."""
    return _PER_LAYER in getattr(annotation, "__metadata__", ()) or any(
        is_per_layer(part) for part in typing.get_args(annotation)
    )


@dataclasses.dataclass(frozen=True)
class Scheme:
    """The base class: frozen data with two methods, `writes` and `draw`.

    Fields are checked by their declared types (`mimetic_jax.base.typed`) and stored as plain Python
    data; what the types don't say, a subclass checks in `validate`. What `draw` returns is checked
    too: its roles, their shapes and, unless they are traced, that they are finite.

    For JAX a scheme is a tree without leaves, compared by its fields: `jax.jit(rewrite)(key,
    params, Mimetic())` compiles once for each scheme.

    A scheme whose draw depends on the layer declares it, by a field of type `PerLayer` or by
    `depends_on_layer`, since `plan` otherwise looks at one layer of each kind only. A layer that it
    leaves as it is gets its own arrays. One that reads the grid or data of its context names these
    options of `rewrite` in `uses`, since others may not be passed.

    A subclass registers itself under its class name, by which `from_dict` finds it, wherever it is
    defined. A second class of that name raises InputError, unless it is a new definition of the
    first (same module and qualified name), as in a notebook. Names with a leading underscore are
    for shared base classes and stay unregistered.

    Example:
        >>> import jax.numpy as jnp
        >>> @dataclasses.dataclass(frozen=True)
        ... class EvenLayersZero(Scheme):
        ...     depends_on_layer = True
        ...
        ...     def writes(self, roles):
        ...         return roles & {"out"}
        ...
        ...     def draw(self, key, block, context):
        ...         return {"out": block["out"] * (context.layer % 2)}
    """

    depends_on_layer: ClassVar[bool] = False
    """Whether the draw depends on the layer otherwise than through a field of type `PerLayer`."""
    gated: ClassVar[bool] = False
    """Whether the scheme writes the kernels of gated MLPs, too."""
    exact: ClassVar[bool] = False
    """Whether attention leaves that no rule describes raise InputError: logits depend on them."""
    partial: ClassVar[bool] = False
    """Whether a draw keeps a part of the kernels that it writes: another scheme may come before."""
    needs: ClassVar[str] = ""
    """What a tree must have, for the error if the scheme finds nothing to write in it."""
    uses: ClassVar[frozenset[str]] = frozenset()
    """The options of `rewrite` that the draw reads from its context: "grid", also for the position
    table's rows; "counts", "following" and "covariance"."""
    own_controls: ClassVar[frozenset[str]] = frozenset()
    """The wrappers whose draw is `controlled`, by name."""
    joint_roles: ClassVar[tuple[frozenset[str], ...]] = ()
    """Roles of a block whose arrays have a law together, such as query and key."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__call__" in vars(cls):  # it would be called without the checks
            raise InputError(f"{cls.__name__} defines __call__: name the method draw")
        if "by_depth" in vars(cls):  # its name before, without which layers would be drawn alike
            raise InputError(f"{cls.__name__} defines by_depth: name it depends_on_layer")
        jax.tree_util.register_static(cls)  # `jit` and `vmap` take a scheme as an argument
        if cls.__name__.startswith("_"):
            return
        first = REGISTRY.get(cls.__name__, cls)
        if _full_name(first) != _full_name(cls):
            raise InputError(
                f"two schemes are named {cls.__name__}: {_full_name(first)} and {_full_name(cls)}; "
                "rename one, since a scheme is stored by its name"
            )
        REGISTRY[cls.__name__] = cls

    def __new__(cls, *values: Any, **fields: Any) -> Self:
        own = [
            name
            for name, kind in inspect.get_annotations(cls).items()
            if "ClassVar" not in str(kind)
        ]
        if own and "__dataclass_params__" not in vars(cls):
            raise InputError(
                f"{cls.__name__} must be a dataclass, as it has the field {own[0]}. Put "
                "@dataclasses.dataclass(frozen=True) above the class."
            )
        taken = inspect.signature(cls.__init__).parameters
        for name in fields:
            if name not in taken and not any(p.kind is p.VAR_KEYWORD for p in taken.values()):
                raise unknown(f"field of {cls.__name__}", name, [*taken][1:])
        return super().__new__(cls)

    def __post_init__(self) -> None:
        check_fields(self)
        with named_if_traced(self):
            self.validate()

    def validate(self) -> None:
        """Raise InputError if the fields, each of its type and in range, don't go together."""

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        """Return the roles to overwrite in a block with `roles`; none, to skip the block."""
        raise NotImplementedError

    def undone_by(self, written: frozenset[str], later: frozenset[str]) -> frozenset[str]:
        """Find the roles that `later` overwrites although this scheme draws them with others.

        Those are a part of `joint_roles` in a block where this scheme has `written` some of them: a
        scheme that writes all of them draws them anew.
        """
        split = [group for group in self.joint_roles if group & written and not group <= later]
        return later & frozenset().union(*split)

    def instead(self, later: frozenset[str]) -> str:
        """Return what to pass in place of this scheme and a later one that writes these roles, if
        no order of the two will do."""
        return ""

    def covers(self, layer: int, num_layers: int) -> bool:
        """Tell whether the scheme draws a layer; the others keep their arrays, and no plan lists
        them.

        A scheme that doesn't cover all layers also `depends_on_layer`.
        """
        return True

    def check_tree(self, present: frozenset[str], written: frozenset[str]) -> None:
        """Raise InputError if a whole tree lacks a role that the scheme needs, or has a wrong one,
        by the roles of all blocks and those among them that it writes."""

    def note(self, block: Block, context: Context) -> str:
        """Describe the draw in a block or its data for a plan, in a sentence; "" for nothing."""
        return ""

    def survey(self, network: Callable[[], Network], written: frozenset[str]) -> Any:
        """Return what draws use of the whole tree, arrays in a dictionary: None unless a scheme
        asks.

        Calling `network` raises InputError if the tree isn't one decoder of tokens; `written` are
        the roles that the scheme writes in it.
        """
        return None

    def controlled(
        self, kind: str, key: jax.Array, block: Block, context: Context
    ) -> dict[str, jax.Array]:
        """Return the draw of one of `own_controls`, from the key of the wrapper."""
        raise NotImplementedError

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        """New canonical arrays for exactly the roles `writes(frozenset(block))`."""
        raise NotImplementedError

    def __call__(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        """What `draw` returns, after checks; its own arrays for a layer that isn't covered."""
        name = type(self).__name__
        if not isinstance(block, Mapping):  # a layer took the scheme for its `kernel_init`
            raise InputError(
                f"{name} draws the kernels of a whole block together, so it can't be the "
                f"initializer of one: rewrite(key, params, {name}()) after init, or one of "
                "mimetic_jax.initializers"
            )
        block = block if isinstance(block, Block) else Block.of(block)
        written = roles_to_write(self, block)
        if not self.covers(context.layer, context.num_layers):
            return {role: block[role] for role in sorted(written)}
        check_room(*(block.shapes[role] for role in written))
        try:
            with named_if_traced(self):
                drawn = self.draw(key, block, context)
        except MissingRole as error:
            raise InputError(
                f"draw of {name} must read roles that the block has; got {error}. The block has "
                f"{', '.join(sorted(block))}. Let writes(roles) be frozenset() without it."
            ) from error
        _check_drawn(self, block, written, drawn)
        return drawn

    def at(self, layer: int, num_layers: int) -> Self:
        """Return the scheme for one layer: sequences and functions of depth become numbers.

        >>> from mimetic_jax.schemes import Mimetic
        >>> Mimetic(beta_vo=lambda depth: -0.4 * (1 - depth)).at(11, 12).beta_vo
        -0.0
        """
        resolved = {}
        own: Any = type(self)
        for name, annotation in field_types(own).items():
            value = getattr(self, name)
            if is_per_layer(annotation):
                resolved[name] = for_layer(name, value, layer, num_layers)
            elif isinstance(value, Scheme):
                resolved[name] = value.at(layer, num_layers)
        return dataclasses.replace(self, **resolved)


def _check_drawn(scheme: Scheme, block: Block, written: frozenset[str], drawn: Any) -> None:
    """Raise InputError unless these are finite arrays of the roles and shapes of the scheme."""
    name = type(scheme).__name__
    if not isinstance(drawn, Mapping) or frozenset(drawn) != written:
        roles = sorted(drawn) if isinstance(drawn, Mapping) else shown(drawn)
        raise InputError(f"{name} returns {roles}, but its writes() lists {sorted(written)}")
    for role in sorted(written):
        array = drawn[role]
        if np.shape(array) != block.shapes[role]:
            raise InputError(
                f"{name} returns {role} of shape {np.shape(array)}, not {block.shapes[role]}"
            )
        if not is_finite(array):
            raise InputError(f"{name} returns {role} with values that are not finite numbers")


@contextlib.contextmanager
def named_if_traced(scheme: Scheme) -> Iterator[None]:
    """Turn JAX's error about a traced value into one about the scheme, if its field is traced."""
    try:
        yield
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        traced = [
            field.name
            for field in dataclasses.fields(scheme)
            if isinstance(getattr(scheme, field.name), jax.core.Tracer)
        ]
        if not traced:
            raise
        raise InputError(
            f"{type(scheme).__name__}.{traced[0]} can't be traced by jit or vmap; pass a number"
        ) from error


def roles_to_write(scheme: Scheme, roles: Iterable[str]) -> frozenset[str]:
    """Return the roles that a scheme overwrites in a block; check that the block has them."""
    present = frozenset(roles)
    roles = scheme.writes(present)
    if not isinstance(roles, frozenset | set | tuple | list) or not frozenset(roles) <= present:
        raise InputError(
            f"{type(scheme).__name__}.writes returns {shown(roles)}, which are not among the roles "
            f"{sorted(present)}"
        )
    return frozenset(roles)


def both_or_none(roles: frozenset[str], first: str, second: str) -> frozenset[str]:
    """Two roles that are drawn together, or nothing if a block has neither; one is an error."""
    present = roles & {first, second}
    if len(present) == 1:
        [lacking] = {first, second} - present
        raise InputError(
            f"{first} and {second} are drawn together but only {next(iter(present))} was found. "
            f"Put a rule of the other in front, rules=(Rule(path, {lacking!r}, layout), *rules), "
            "or leave the block out if one kernel is key and value at the same time"
        )
    return present


def field_values(scheme: Scheme) -> Iterator[Any]:
    """Yield the values of a scheme's fields, also those inside of schemes, tuples and functions.

    >>> from mimetic_jax.schemes import Layers, Zero
    >>> [value for value in field_values(Layers(Zero(), 0.5)) if isinstance(value, float)]
    [0.5, 1.0]
    """
    waiting: list[Any] = [scheme]
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, Scheme):
            waiting += [getattr(value, field.name) for field in dataclasses.fields(value)]
        else:
            yield value
            yield from _closed_over(value)
            waiting += value if isinstance(value, tuple) else ()


def _closed_over(function: Any) -> Iterator[Any]:
    """The values that a function of depth takes from where it was defined."""
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # an empty cell
            yield from jax.tree.leaves(cell.cell_contents)


def inside(schemes: Iterable[Any]) -> Iterator[Scheme]:
    """Schemes, and those inside of others.

    >>> from mimetic_jax.schemes import Mimetic, NormMatched
    >>> [type(scheme).__name__ for scheme in inside([NormMatched(Mimetic())])]
    ['NormMatched', 'Mimetic']
    """
    for scheme in schemes:
        yield scheme
        if isinstance(inner := getattr(scheme, "like", None), Scheme):
            yield from inside([inner])


def used_by(schemes: Iterable[Scheme]) -> frozenset[str]:
    """Return the options of `rewrite` that one of the schemes reads."""
    return frozenset[str]().union(*(scheme.uses for scheme in schemes))


def depth_dependence(scheme: Scheme) -> str:
    """Return what makes a scheme depend on the layer: the name of a field or of the class, or "".

    >>> from mimetic_jax.schemes import Mimetic, NormMatched
    >>> depth_dependence(NormMatched(Mimetic(beta_qk=(0.5, 0.7))))
    'Mimetic.beta_qk'
    """
    name = type(scheme).__name__
    if scheme.depends_on_layer:
        return name
    own: Any = type(scheme)
    for field, annotation in field_types(own).items():
        value = getattr(scheme, field)
        if isinstance(value, Scheme):
            if inner := depth_dependence(value):
                return inner
        elif is_per_layer(annotation) and (isinstance(value, tuple) or callable(value)):
            return f"{name}.{field}"
    return ""


def name_of(scheme: Scheme) -> str:
    """Return the name of a scheme, with that of the scheme inside: "NormMatched(Mimetic)"."""
    name, inner = type(scheme).__name__, getattr(scheme, "like", None)
    return f"{name}({name_of(inner)})" if isinstance(inner, Scheme) else name


def call_of(scheme: Scheme, always: tuple[str, ...] = ()) -> str:
    """Return the call that makes a scheme, without its defaults but for fields that begin so.

    >>> from mimetic_jax.schemes import Mimetic, NormMatched
    >>> call_of(NormMatched(Mimetic(beta_vo=-0.2)))
    'NormMatched(like=Mimetic(beta_vo=-0.2))'
    """
    fields = [
        f"{field.name}={call_of(value) if isinstance(value, Scheme) else repr(value)}"
        for field in dataclasses.fields(scheme)
        if (value := getattr(scheme, field.name)) != field.default or field.name.startswith(always)
    ]
    return f"{type(scheme).__name__}({', '.join(fields)})"


def attention_kernels(roles: frozenset[str]) -> frozenset[str]:
    """Return those of query, key, value and out among the roles of a block; none if there is only
    one.

    A lone kernel is a Dense layer that happens to be called value or out.
    """
    kernels = roles & {"query", "key", "value", "out"}
    return kernels if len(kernels) > 1 else frozenset()


def as_tuple(scheme: Scheme | Sequence[Scheme]) -> tuple[Scheme, ...]:
    """Turn one scheme, or a tuple or list of schemes, into a tuple.

    Args:
        scheme: a scheme, or a tuple or list of schemes.

    Returns:
        A tuple of schemes.

    Raises:
        InputError: for anything else.
    """
    several = tuple(scheme) if isinstance(scheme, tuple | list) else (scheme,)
    for part in several:
        if not isinstance(part, Scheme) and callable(part) and hasattr(part, "__name__"):
            raise InputError(f"{part.__name__} is not a scheme: call it, {part.__name__}()")
        if not isinstance(part, Scheme):
            raise InputError(
                f"{shown(part)} is not a scheme; pass one such as Mimetic(), or a tuple or list of "
                "several, none inside another"
            )
    return several


def _full_name(scheme: type[Scheme]) -> str:
    return f"{scheme.__module__}.{scheme.__qualname__}"
