"""A process that has JAX alone and not the extras: run once, and read by several tests.

    python -W error -m tests.alone FOLDER

It does one thing after the other, as processes of users would, and prints what came of it as JSON.
Without a folder, which must be empty, it says what the core loads where it is called.
"""

import contextlib
import io
import json
import os
import pathlib
import runpy
import sys
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
HEAVY = {
    *("tensorflow", "tensorflow_datasets", "grain", "orbax", "cv2"),
    *("matplotlib", "sklearn", "PIL", "flax", "optax"),
}
COMMANDS = ("--help", "configs", "train digits_vit", "check weights.npz")


@contextlib.contextmanager
def without(*missing: str) -> Any:
    """Modules that can't be found inside the block."""
    sys.modules.update(dict.fromkeys(missing))  # importing None is an ImportError
    yield
    for name in missing:
        del sys.modules[name]


def blas() -> list[int]:
    """The threads of each BLAS inside of our limit, also of one that is loaded there."""
    from mimetic_jax.host.cores import limited_blas

    with limited_blas():
        import scipy.linalg  # noqa: F401
        import threadpoolctl

        found = threadpoolctl.threadpool_info()
    return [one["num_threads"] for one in found if one["user_api"] == "blas"]


def sums() -> list[Any]:
    """Gradients of a class token of T tokens, at 512 examples, after the command is imported.

    Without its flag jaxlib 0.10.1 gives 8704 for T = 17, and ends the process for T = 65.
    """
    import jax
    import jax.numpy as jnp

    import mimetic_jax.command.console  # noqa: F401
    from mimetic_jax.host import sums

    def token(x: jax.Array, length: int) -> jax.Array:
        return jnp.sum(jnp.pad(x, ((0, 0), (0, length - 1), (0, 0))), (0, 1))

    ones = jnp.ones((512, 1, 96))
    found = [float(jax.jit(token, static_argnums=1)(ones, length)[0]) for length in (17, 65)]
    return [*found, sums.right_sums()]


def core() -> dict[str, list[str]]:
    """The core's calls: which heavy modules they loaded, and what modules of an extra say."""
    import jax

    import mimetic_jax
    from mimetic_jax import check, fit, initializers, plan, rewrite, schemes, torch, zoo

    jax.config.update("jax_disable_most_optimizations", True)  # to compile is most of the time
    scheme, key = schemes.Mimetic(), jax.random.key(0)
    params = {"attention": initializers.attention(scheme)(key, dim=16, num_heads=2)}
    plan(jax.eval_shape(lambda: params), scheme)
    params = rewrite(key, params, scheme)
    check(params), fit(params), torch.initialize, zoo.TABLES
    said = []
    for name in ("linen", "nnx"):
        try:
            getattr(mimetic_jax, name)
        except mimetic_jax.InputError as error:
            said.append(str(error))
    loaded = {name.split(".")[0] for name, module in sys.modules.items() if module}
    return {"loaded": sorted(loaded & HEAVY), "said": said}


def ended(call: Callable[[], Any], *argv: str) -> list[Any]:
    """The code, output and errors of a command."""
    sys.argv, out, err, code = [sys.argv[0], *argv], io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            call()
        except SystemExit as error:
            code = error.code or 0
    return [code, out.getvalue(), err.getvalue()]


def everything(folder: str) -> dict[str, Any]:
    from mimetic_jax.base.extras import EXTRAS

    with without(*EXTRAS["train"]):
        found: dict[str, Any] = {"blas": blas(), "sums": sums(), "core": core()}
        import jax
        import numpy as np

        from mimetic_jax import initializers, schemes
        from mimetic_jax.command.console import main

        os.chdir(folder)
        layer = initializers.attention(schemes.Mimetic())(jax.random.key(0), dim=16, num_heads=2)
        np.savez("weights.npz", **{f"{role}/kernel": layer[role]["kernel"] for role in layer})
        found |= {command: ended(main, *command.split()) for command in COMMANDS}
    with without("jinja2"):
        found["report"] = ended(main, "train", "digits_vit", "--workdir=runs")
    os.chdir(ROOT)
    script = lambda: runpy.run_path("main.py", run_name="__main__")  # noqa: E731
    found["main.py"] = ended(script, f"--workdir={folder}/runs", "--config=configs/nothing.py")
    return found | {"left": os.listdir(folder)}


if __name__ == "__main__":
    print(json.dumps(everything(*sys.argv[1:]) if sys.argv[1:] else core()))
