"""What a program trains: a model with its loss, for images, text and recall.

A task is a module of this package with three functions of a configuration:

- `describe(config, dataset=None)`: what is known of the data set, as published or as loaded.
- `load(config)`: the data set, whose `fingerprint()` differs where examples do.
- `build(config, info, mesh)`: the `Task` and the `Feed` that belong together.
"""

from types import ModuleType

from mimetic_jax.base.errors import unknown
from mimetic_jax.train.tasks import images, recall, text

TASKS: dict[str, ModuleType] = {"images": images, "recall": recall, "text": text}


def task_module(name: str) -> ModuleType:
    """The task of a configuration, `config.task`.

    Raises:
        InputError: for an unknown name.
    """
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name]
