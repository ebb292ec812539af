# Two commands to know: `make quickstart` and `make test`. Each sets itself up from a bare machine.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
THREADS ?= 1,2
STUDIES ?= sharing embedding sentence depth width time dropout ngram groups masking attention
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: quickstart test test-browser test-tensorflow test-slow test-cluster test-wheel test-machines gpu-day check bench words study docs dist clean

$(VENV)/.user: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -U "pip>=25.1" # knows dependency groups
	$(BIN)/pip install -q -c constraints.txt torch
	$(BIN)/pip install -q -c constraints.txt -e .
	touch $@

$(VENV)/.dev: $(VENV)/.user
	$(BIN)/pip install -q -c constraints.txt -e ".[all]" --group dev
	touch $@

quickstart: $(VENV)/.user  ## text on this machine -> vocabulary -> corpus -> ALBERT -> answers, in about 8 minutes
	$(BIN)/python examples/quickstart/quickstart.py

check: $(VENV)/.dev  ## formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy -p benchmarks
	$(BIN)/lint-imports

test: check  ## everything that must hold on every push
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 -m "not slow and not tensorflow and not browser"

.venv-tensorflow/.ready: tests/tensorflow/constraints.txt
	$(PYTHON) -m venv .venv-tensorflow
	.venv-tensorflow/bin/pip install -q -c tests/tensorflow/constraints.txt tensorflow-cpu
	touch $@

test-tensorflow: $(VENV)/.dev .venv-tensorflow/.ready  ## Google's checkpoints beside real TensorFlow
	LITEBERT_TENSORFLOW_PYTHON=$(CURDIR)/.venv-tensorflow/bin/python $(BIN)/pytest -q tests/tensorflow

test-browser: $(VENV)/.dev  ## the playground in Chromium (Debian: apt-get install chromium)
	$(BIN)/pytest -q -n 0 -m browser tests

test-slow: $(VENV)/.dev  ## minutes of kills, fuzz and real text
	$(BIN)/pytest -q -m slow

test-cluster: $(VENV)/.dev  ## a corpus built by a Ray cluster, one of whose workers dies
	$(BIN)/pytest -q -n 0 -m cluster tests/corpus

test-machines: $(VENV)/.dev  ## `make test` as on nine kinds of machine, in random order: hours (MACHINES="avx2-1 busy")
	$(BIN)/python -m tests.machines $(MACHINES)

test-wheel: $(VENV)/.dev  ## the wheel in a bare environment, extra by extra
	$(BIN)/pytest -q -n 0 -m wheel tests/test_wheel.py

.venv-bench/.ready: constraints.txt benchmarks/speed/constraints.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install -q -U "pip>=25.1"
	.venv-bench/bin/pip install -q -c constraints.txt torch
	.venv-bench/bin/pip install -q -c constraints.txt -c benchmarks/speed/constraints.txt -e ".[all]" --group dev accelerate ninja nncf openvino psutil
	touch $@

bench: .venv-bench/.ready  ## litebert beside transformers, onnxruntime, OpenVINO and torch.compile (THREADS=1,2)
	.venv-bench/bin/python -m benchmarks.speed.run --threads $(THREADS) --record benchmarks/RESULTS.md
	.venv-bench/bin/python -m benchmarks.speed.run inference --preset minilm-l6 --threads 1 --record benchmarks/RESULTS.md
	.venv-bench/bin/python -m benchmarks.speed.run inference --preset bert-base --threads 1 --record benchmarks/RESULTS.md
	.venv-bench/bin/python -m benchmarks.loader
	.venv-bench/bin/python -m benchmarks.tokenizer
	.venv-bench/bin/python -m benchmarks.pretraining.step
	.venv-bench/bin/python -m benchmarks.serving.run --record benchmarks/serving/RESULTS.md
	.venv-bench/bin/python -m benchmarks.serving.overload

gpu-day: $(VENV)/.dev  ## everything that needs a GPU, in 12 minutes (GLUE=folder of GLUE, THEN="litebert pretrain ...")
	$(BIN)/python -m benchmarks.gpu_day --out build/gpu-day $(if $(GLUE),--glue $(GLUE)) $(if $(THEN),--then $(THEN))

words: $(VENV)/.dev  ## trains the packaged model further, in the background (SLOT=vectors, run or trials, STATE=folder)
	PYTHON=$(BIN)/python benchmarks/pretraining/words/resume.sh $(SLOT)

study: $(VENV)/.user  ## the paper's tables at a small scale: an hour or two of a free core (TEXT=your.jsonl)
	$(BIN)/litebert tokenizer train $(TEXT) --vocab-size 600 --output build/study/vocabulary
	$(BIN)/litebert corpus build $(TEXT) --tokenizer build/study/vocabulary --output build/study/corpus --held-out 0.04
	for t in $(STUDIES); do \
	  $(BIN)/python -m benchmarks.study.ablation $$t --corpus build/study/corpus --output build/study --seeds 1,2,3 --afford 1.5 || exit 1; \
	done

docs: $(VENV)/.dev  ## the documentation as a site, in build/site
	$(BIN)/python docs/gather_pages.py
	$(BIN)/zensical build --strict --clean

dist: $(VENV)/.dev  ## the sdist and the wheel of this version, in dist
	$(BIN)/pip install -q build twine
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

clean:
	rm -rf $(VENV) .venv-bench .venv-tensorflow build dist
