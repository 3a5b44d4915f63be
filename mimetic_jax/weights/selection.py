"""Weight selection: initialize a small model with evenly spaced weights of a large trained one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.weights.factor import Array


def select_indices(teacher: int, student: int) -> np.ndarray:
    """Evenly spaced indices [S] of one dimension: S of T.

    0, T/S, 2T/S, … if S divides T, else linspace(0, T − 1, S) rounded half to even.

    >>> select_indices(6, 3), select_indices(6, 4)
    (array([0, 2, 4]), array([0, 2, 3, 5]))
    """
    if teacher % student == 0:
        return np.arange(student) * (teacher // student)
    return np.round(np.linspace(0, teacher - 1, student)).astype(np.int64)


def select(
    teacher: Mapping[str, Array], student: Mapping[str, tuple[int, ...]]
) -> dict[str, Array]:
    """A student's weights: evenly spaced indices of the teacher's leaves of the same paths.

    student[path][i, j, …] = teacher[path][t_i, t_j, …], t the `select_indices` of each dimension.
    Layers match by name, so a deeper teacher gives its first layers. The storage decides about
    heads: flattened into one axis, a student's head may mix two of the teacher's (as in the
    released code); with an axis of their own, whole heads are chosen.

    >>> select({"fc1/kernel": np.arange(8.).reshape(2, 4)}, {"fc1/kernel": (1, 2)})
    {'fc1/kernel': array([[0., 2.]])}

    Reference: Initializing Models with Larger Ones (Xu et al. 2024), uniform selection.
    """
    chosen: dict[str, Array] = {}
    for path, shape in student.items():
        if path not in teacher:
            raise InputError(
                f"the teacher has no {path}, which the student has with shape {tuple(shape)}; "
                f"it has {', '.join(list(teacher)[:4]) or 'nothing'}, …"
            )
        leaf = teacher[path]
        if leaf.ndim != len(shape) or not all(
            1 <= size <= of for size, of in zip(shape, leaf.shape, strict=True)
        ):
            raise InputError(
                f"{path}: the student's shape {tuple(shape)} can't be selected from the teacher's "
                f"{tuple(leaf.shape)}"
            )
        chosen[path] = leaf[np.ix_(*map(select_indices, leaf.shape, shape))]
    return chosen
