"""What pyproject.toml can't say: a wheel has a copy of `configs/` inside the package."""

import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConfigs(build_py):
    """A checkout's configurations stay where they are; an installed package has its own."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = pathlib.Path(self.build_lib) / "mimetic_jax" / "shipped" / "configs"
            shutil.rmtree(target, ignore_errors=True)  # of an earlier build
            target.mkdir(parents=True)
            for path in sorted(pathlib.Path("configs").glob("*.py")):
                shutil.copy(path, target)


setup(cmdclass={"build_py": BuildWithConfigs})
