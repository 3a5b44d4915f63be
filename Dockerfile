# main.py and what it needs, nothing else. From the root of the repository:
#
#   docker build -t mimetic_jax .                        CPU
#   docker build -t mimetic_jax --build-arg EXTRA=gpu . NVIDIA GPUs (run with --gpus=all)
#   docker build -t mimetic_jax --build-arg EXTRA=tpu .  TPU
#   docker run --rm -v "$PWD/runs:/app/runs" mimetic_jax --config=configs/digits_vit.py
#
# A mounted folder of results must be writable by user 1000, or by the user that --user sets.
FROM python:3.13-slim
ARG EXTRA=""

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN useradd --uid 1000 --create-home trainer
WORKDIR /app

# Dependencies come before the code, so that a change of the code doesn't reinstall them: those of
# the package alone, at the versions and with the hashes of requirements.lock.
COPY requirements.txt requirements.lock pyproject.toml README.md LICENSE ./
COPY mimetic_jax/__init__.py mimetic_jax/
COPY mimetic_jax/base/__init__.py mimetic_jax/base/version.py mimetic_jax/base/
RUN pip install --no-cache-dir --require-hashes -r requirements.lock \
    && pip install --no-cache-dir --no-deps -e .
RUN test -z "$EXTRA" || pip install --no-cache-dir --constraint requirements.txt -e ".[$EXTRA]"

COPY main.py ./
COPY mimetic_jax mimetic_jax
COPY configs configs
COPY launch launch
COPY benchmarks benchmarks
COPY papers papers
RUN install -d -o trainer -g trainer runs

USER trainer
ENTRYPOINT ["python", "main.py"]
