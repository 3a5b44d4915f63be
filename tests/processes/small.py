"""Small runs for processes of their own: `--config=tests/processes/small.py:kind=text`."""

from ml_collections import ConfigDict

from configs.default import default, model
from mimetic_jax.schemes import Mimetic, SinCos, mimetic_language


def get_config(kind: str = "images", fsdp: int = 2) -> ConfigDict:
    config = default("text" if kind == "text" else "images")
    config.name, config.mesh.fsdp = "small", fsdp
    config.batch, config.steps, config.max_dispatch = 64, 6, 3
    config.model.update(width=32, depth=1, heads=2)
    config.eval.batch, config.checkpoint_every, config.log_every = 72, 3, 1
    config.optimizer.update(clip=1.0, warmup=2)
    config.scheme = (SinCos(), Mimetic())
    if kind == "normalized":
        config.model, config.scheme = model("tests.plugged:TinyBatchNorm", width=16), ()
        config.ema = 0.9
    elif kind == "text":
        config.model.update(depth=2, scan=True)
        config.data.update(name="ptb_word", length=12, valid=8)
        config.scheme = (mimetic_language(),)
    elif kind == "streamed":
        config.batch, config.steps, config.max_dispatch = 8, 24, 50
        config.eval.batch, config.checkpoint_every = 8, 12
        config.model.update(width=16, patch=8)
        config.data.update(name="imagenet2012", classes=2, size=16, repeats=2)
        config.data.augment.update(crop_scale=(0.3, 1.0), flip=True)
        config.data.mix.mixup = 0.5
    return config
