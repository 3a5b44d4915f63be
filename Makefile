PYTHON ?= python3
PINS ?=
BIN := .venv/bin

.PHONY: demo test slow real check bench docs clean

demo: .venv/installed  ## train on digits and on text, with and without mimetic init: a table and a page each
	$(BIN)/python main.py --config=configs/digits_vit.py --workdir=runs/demo/digits
	$(BIN)/python main.py --config=configs/python_docs.py --workdir=runs/demo/text

test: .venv/installed  ## the tests and doctests, without the slow ones
	$(BIN)/python -m pytest -q -n 2 --durations=15

slow: .venv/installed  ## the slow tests
	$(BIN)/python -m pytest -q -m slow -n 2 --timeout 900 --durations=15

real: .venv-real/installed  ## the tests that need PyTorch and other libraries, in an environment of their own; steps as XLA compiles them for users
	.venv-real/bin/python -m pytest -q -m "slow or not slow" tests/zoo/test_real.py tests/zoo/test_types.py tests/test_torch.py tests/test_without_library.py tests/test_compiled.py

check: .venv/installed  ## everything that must hold before a commit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n 2 --durations=15

bench: .venv/installed  ## time embeddings from counts, and training steps beside PyTorch's
	$(BIN)/python -m benchmarks.counts
	$(BIN)/python -m benchmarks.step

docs: .venv/installed  ## the documentation as a site, in site/html
	$(BIN)/pip install -q --upgrade "pip>=25.1"
	$(BIN)/pip install -q --constraint requirements.txt --group docs
	$(BIN)/sphinx-build -q -W --keep-going docs site/html

.venv/installed: requirements.txt $(PINS) pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.13")'
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/pip install -q -r requirements.txt
	$(if $(PINS),$(BIN)/pip install -q -r $(PINS))
	$(BIN)/pip install -q --no-deps -e .
	touch $@

# google-tunix asks for transformers 4, which the models that are tested don't import.
.venv-real/installed: requirements.txt requirements-real.txt
	test -d .venv-real || $(PYTHON) -m venv .venv-real
	.venv-real/bin/pip install -q -r requirements.txt -r requirements-real.txt
	.venv-real/bin/pip install -q transformers==5.24.0
	touch $@

clean:
	rm -rf .venv .venv-real .cache runs
