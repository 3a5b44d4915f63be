"""Weight selection: initialize a small model with evenly spaced weights of a large trained one."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.weights.factor import Array


def select_indices(teacher: int, student: int) -> np.ndarray:
    """Evenly spaced indices of one dimension.

    0, T/S, 2T/S, … if S divides T, else linspace(0, T − 1, S) rounded half to even.

    Args:
        teacher: T, the size to choose from.
        student: S, the number of indices; 1 ≤ S ≤ T.

    Returns:
        [S] int64, increasing.

    Raises:
        InputError: if S is not between 1 and T.

    Example:
        >>> select_indices(6, 3), select_indices(6, 4)
        (array([0, 2, 4]), array([0, 2, 3, 5]))

    Reference: Initializing Models with Larger Ones (Xu et al. 2024), uniform selection.
    """
    if not 1 <= student <= teacher:
        raise InputError(f"student size {student} is not between 1 and teacher size {teacher}")
    if teacher % student == 0:
        return np.arange(student) * (teacher // student)
    return np.round(np.linspace(0, teacher - 1, student)).astype(np.int64)


def select(
    teacher: Mapping[str, Array],
    student: Mapping[str, tuple[int, ...]],
    *,
    skip: str = r"(^|[/.])head",
) -> dict[str, Array]:
    """A student's weights: evenly spaced indices of the teacher's leaves of the same paths.

        student[path][i, j, …] = teacher[path][t_i, t_j, …],

    where t is `select_indices` of each dimension. Layers match by name, so a deeper teacher gives
    its first layers. The storage decides about heads: flattened into one axis, a student's head may
    mix two of the teacher's (as in the released code); with an axis of their own, whole heads are
    chosen.

    Args:
        teacher: arrays by path, such as those of a flattened checkpoint.
        student: shapes by path.
        skip: regular expression, searched in each path, for leaves that keep their own
            initialization. By default names that start with "head", as the classes differ. (The
            released code skips every path that contains "head", thus all "multihead_attention".)

    Returns:
        Arrays by path, of the teacher's kind and dtype, for all paths that aren't skipped.

    Raises:
        InputError: if the teacher lacks a path, or its leaf is smaller or has another rank.

    Example:
        >>> teacher = {"fc1/kernel": np.arange(8.).reshape(2, 4), "head/kernel": np.ones((2, 10))}
        >>> select(teacher, {"fc1/kernel": (1, 2), "head/kernel": (1, 5)})
        {'fc1/kernel': array([[0., 2.]])}

    Reference: Initializing Models with Larger Ones (Xu et al. 2024), uniform selection.
    """
    chosen: dict[str, Array] = {}
    for path, shape in student.items():
        if re.search(skip, path):
            continue
        if path not in teacher:
            raise InputError(
                f"the teacher has no {path}, which the student has with shape {tuple(shape)}; "
                f"it has {', '.join(list(teacher)[:4]) or 'nothing'}, …"
            )
        leaf = teacher[path]
        if leaf.ndim != len(shape) or not all(map(_fits, shape, leaf.shape)):
            raise InputError(
                f"{path}: the student's shape {tuple(shape)} can't be selected from the teacher's "
                f"{tuple(leaf.shape)}"
            )
        chosen[path] = leaf[np.ix_(*map(select_indices, leaf.shape, shape))]
    return chosen


def _fits(student: int, teacher: int) -> bool:
    return 1 <= student <= teacher
