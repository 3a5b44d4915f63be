"""The windows of a text that a step reads, as index arithmetic: the protocol of Bai et al.

The inputs of a window are `length` tokens, its targets the tokens after each. Only the last `valid`
targets count; the `length - valid` before them are context, and count in other windows.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError


def batchify(tokens: np.ndarray, batch: int) -> np.ndarray:
    """Cut a text [N] into rows [B, N // B] that are read in parallel; the remainder is dropped."""
    return tokens[: len(tokens) // batch * batch].reshape(batch, -1)


def train_windows(
    num_tokens: int, batch: int, length: int, valid: int, shuffled: bool = False
) -> tuple[int, int]:
    """Return the number of windows in an epoch, which start `valid` tokens apart in the rows of
    `batchify`, and how many tokens later the first may start.

    Shuffled windows are full ones, as many as leave room to start up to at least `valid` - 1 tokens
    later, so that over the epochs all targets count. Others start at 0, as long as one target
    counts.

    >>> train_windows(101, 1, 10, 10, shuffled=True), train_windows(101, 1, 10, 10)
    ((9, 10), (10, 0))
    """
    if not 1 <= valid <= length:
        raise InputError(f"valid {valid} isn't between 1 and the window's length {length}")
    row = num_tokens // batch
    if row <= length:
        raise InputError(
            f"{num_tokens} tokens in {batch} rows are {row} per row, too short for windows of "
            f"{length} and a target"
        )
    targets = row - 1 - (length - valid)
    if not shuffled:
        return -(-targets // valid), 0
    windows = max((targets + 1) // valid - 1, 1)
    return windows, targets - windows * valid


def window(
    rows: jax.Array, start: jax.Array | int, length: int, valid: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Inputs, targets and weights of one step, [B, length] each; a weight is 1 or 0.

    The last window of a text may reach beyond the rows. It keeps its shape: the last token is
    repeated there with weight 0, which a causal model doesn't see at the positions that count.

    Reference: word_cnn of the program of Bai et al. (An Empirical Evaluation of Generic
    Convolutional and Recurrent Networks for Sequence Modeling). Its char_cnn differs in one case:
    for a last window without a target that counts, it takes the mean of nothing.
    """
    last = rows.shape[1] - 1
    position = start + jnp.arange(length)
    inputs = rows[:, jnp.minimum(position, last)].astype(jnp.int32)
    targets = rows[:, jnp.minimum(position + 1, last)].astype(jnp.int32)
    counts = (position < last) & (jnp.arange(length) >= length - valid)
    return inputs, targets, jnp.broadcast_to(counts.astype(jnp.float32), inputs.shape)


def eval_windows(
    num_tokens: int, batch: int, length: int, valid: int
) -> tuple[np.ndarray, np.ndarray]:
    """Windows that count every token once, for any batch size.

    Every token but the first, which nothing precedes, is the target of one window, with at least
    `length - valid` tokens of context, or all that precede it. The text is one row; its first
    window counts all of its targets. The program of Bai et al. instead cuts a text of words into 10
    rows, and leaves out the context of each row and the remainder.

    Returns:
        starts int32 [S, B] and weights float32 [S, B, length] of the targets; padding has start 0
        and weights 0. The weights sum to N - 1.
    """
    if num_tokens <= length:
        raise InputError(
            f"a text of {num_tokens} tokens is too short for windows of {length} and a target"
        )
    count = 1 + max(0, -(-(num_tokens - 1 - length) // valid))
    starts = np.arange(-(-count // batch) * batch, dtype=np.int32) * np.int32(valid)
    position = np.arange(length)
    # A target counts in the first window that reaches it.
    new = (position >= length - valid) | (starts[:, None] == 0)
    weights = new & (starts[:, None] + position < num_tokens - 1)
    weights[count:] = False
    starts[count:] = 0
    return starts.reshape(-1, batch), weights.astype(np.float32).reshape(-1, batch, length)


def windows_at(tokens: jax.Array, starts: jax.Array, length: int) -> tuple[jax.Array, jax.Array]:
    """Inputs and targets, int32 [B, length], of the windows at `starts` [B].

    Past the end of the text [N] the last token is repeated.
    """
    position = starts[:, None] + jnp.arange(length)
    last = len(tokens) - 1
    inputs, targets = (tokens[jnp.minimum(position + ahead, last)] for ahead in (0, 1))
    return inputs.astype(jnp.int32), targets.astype(jnp.int32)
