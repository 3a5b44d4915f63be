"""What a program trains: a model with its loss, for images, text and recall."""

from mimetic_jax.train.tasks.images import ImageTask
from mimetic_jax.train.tasks.recall import RecallTask
from mimetic_jax.train.tasks.task import Task
from mimetic_jax.train.tasks.text import TextTask

TASKS: dict[str, type[Task]] = {"images": ImageTask, "recall": RecallTask, "text": TextTask}
"""By `config.task`."""
