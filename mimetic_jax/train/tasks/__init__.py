"""What a program trains: a model with its loss, for images and text."""

from mimetic_jax.train.tasks.images import ImageTask
from mimetic_jax.train.tasks.task import Task
from mimetic_jax.train.tasks.text import TextTask

TASKS: dict[str, type[Task]] = {"images": ImageTask, "text": TextTask}
"""By `config.task`."""
