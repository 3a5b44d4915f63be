r"""Command line: train, evaluate, compare, plan, compile or analyze a configuration.

    python main.py --config=configs/digits_vit.py
    python main.py --config=configs/cifar10_vit.py:width=96,patch=8 --config.data.dir=DIR \
        --workdir=runs/cifar --mode=plan

`python main.py --help` lists the flags and the configurations.
"""

from mimetic_jax.command.experiment import run

if __name__ == "__main__":
    run()
