"""A ViT-Ti on small data sets that starts from evenly spaced weights of a ViT-S.

Two steps: stage=pretrain trains the ViT-S on ImageNet-1k, once for each arm; stage=select starts
from them, arm by arm and seed by seed, and trains as the weight-selection code does.

Paper: Structured Initialization for Vision Transformers, table 4.
Command:
    python main.py --config=configs/weight_selection_vit.py:stage=pretrain --config.data.dir=DIR \
        --workdir=runs/weight_selection_pretrain
    python main.py --config=configs/weight_selection_vit.py:stage=select,data=cifar10 \
        --config.data.dir=DIR --workdir=runs/weight_selection_cifar10
The row of ImageNet-21k takes a file of a ViT-S instead, such as AugReg's S_16-i21k of vit_jax or
timm's vit_small_patch16_224.augreg_in21k, and needs no first step: teacher=FILE.
Differs from the paper: drop-path is 0, as in the weight-selection code. Whole heads are selected;
    heads=mixed takes every other column of all heads, as the released code does. The warm-up is one
    step longer than the code's. One seed a teacher; for three students of one:
    --config.init_from=TEACHER/runs/{arm}/0 --config.seeds=(0,1,2).
"""

from ml_collections import ConfigDict

from configs import arms, recipes
from configs.default import check_choice


def get_config(
    stage: str = "select",
    data: str = "cifar10",
    teacher: str = "runs/weight_selection_pretrain",
    heads: str = "whole",
    init: arms.Names = arms.ALL,
) -> ConfigDict:
    """Arguments: stage (pretrain, select), init; of stage=select data, teacher and heads.

    `data` and `init` are as in configs/small_data_vit.py, `heads` whole or mixed. `teacher` is the
    workdir of stage=pretrain, or a file, whose arms are whole and mixed.
    """
    check_choice("stage", stage, ("pretrain", "select"))
    every, compared = arms.structured(), arms.STRUCTURED
    if stage == "pretrain":
        config = recipes.structured("S")
        config.optimizer.scaling = "sqrt"
        config.data.repeats = 1
        config.name = "weight_selection_pretrain"
    else:
        config = recipes.small_data(data)
        config.seeds = (0,)
        config.data.augment.interpolation = "bicubic"
        config.model.drop_path = 0.0
        # Step by step, from the peak on.
        config.optimizer.update(schedule="cosine", warmup_from=0.0)
        config.name = f"weight_selection_{data}"
        config.init_heads = heads
        config.init_from = f"{teacher}/runs/{{arm}}/{{seed}}"
        every = {name: {} for name in compared}  # they differ in their teachers alone
        if teacher.endswith((".npz", ".safetensors")):
            config.name += "_file"
            config.init_from = teacher
            every = {way: {"init_heads": way} for way in ("whole", "mixed")}
            compared = tuple(every)
    config.arms = arms.chosen(init, every, compared)
    return config
