"""What a program trains: a model with its loss, for images, text and recall."""

from mimetic_jax.base.errors import unknown
from mimetic_jax.train.tasks.images import ImageTask
from mimetic_jax.train.tasks.recall import RecallTask
from mimetic_jax.train.tasks.task import Task
from mimetic_jax.train.tasks.text import TextTask

TASKS: dict[str, type[Task]] = {"images": ImageTask, "recall": RecallTask, "text": TextTask}


def task_of(name: str) -> type[Task]:
    """The task of a configuration, `config.task`.

    Raises:
        InputError: for an unknown name.
    """
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name]
