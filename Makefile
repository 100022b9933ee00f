# The verbs of the suite. `make` alone prints them. PYTHON names the interpreter that makes .venv.
PYTHON ?= python3
PY := .venv/bin/python
ARGS ?=
# ARGS word by word, each quoted for the shell: an override may hold brackets.
OVERRIDES = $(foreach word,$(ARGS),'$(subst ','\'',$(word))')
SETUP = @command -v $(PYTHON) >/dev/null 2>&1 || { echo "make: $(PYTHON) not found; wanted Python 3.11 or newer (make PYTHON=...)" >&2; exit 3; }; \
	$(PYTHON) requirements/install.py
EXPERIMENT = @test -n "$(EXP)" || { echo "make $@: which experiment? Say for example: make $@ EXP=06" >&2; exit 2; }

.DEFAULT_GOAL := help
.PHONY: help run audit protocol figure keep freeze verify cite key diff replicate battery completion list new oracles test bench campaign clean lock format readme report show test-site notebooks test-notebooks

help:  ## print these lines
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run:  ## run, audit and draw an experiment: make run EXP=06 [ARGS="seeds=[1,2,3]"]
	$(EXPERIMENT)
	$(SETUP) --experiment "$(EXP)"
	@$(PY) -m labcore run "$(EXP)" $(OVERRIDES)

audit:  ## audit all kept and local evidence, or one experiment: make audit [EXP=06]
	$(SETUP)
	@$(PY) -m audit $(if $(EXP),--experiment "$(EXP)") $(ARGS)

protocol:  ## resolve conf/ into the committed protocol.json: make protocol EXP=06
	$(EXPERIMENT)
	$(SETUP)
	@$(PY) -m labcore protocol "$(EXP)" $(OVERRIDES)

figure:  ## draw the figures of a run: make figure EXP=06 [RUN=...]
	$(EXPERIMENT)
	$(SETUP)
	@$(PY) -m labcore figure "$(EXP)" $(if $(RUN),--run "$(RUN)")

keep:  ## make a verified confirmatory run the kept one: make keep EXP=06 [RUN=...] [WHY="..."]
	$(EXPERIMENT)
	$(SETUP)
	@$(PY) -m labcore keep "$(EXP)" $(if $(RUN),--run "$(RUN)") $(if $(WHY),--why "$(WHY)")

freeze:  ## freeze a run into one citable archive: make freeze EXP=06 [RUN=...] [KEY=private key or default] [DRAFT=1]
	$(EXPERIMENT)
	$(SETUP) $(if $(KEY),sign)
	@$(PY) -m labcore freeze "$(EXP)" $(if $(RUN),--run "$(RUN)") $(if $(DRAFT),--draft) \
		$(if $(KEY),$(if $(filter default,$(KEY)),--sign,--key "$(KEY)")) $(ARGS)

verify:  ## check an archive from anyone: make verify FILE=... [SHA256=...] [SWHID=...] [KEY=public key] [SIGNED=1]
	@test -n "$(FILE)" || { echo "make $@: which archive? Say for example: make $@ FILE=evidence/archives/NAME.tar" >&2; exit 2; }
	$(SETUP) sign
	@$(PY) -m labcore verify "$(FILE)" $(if $(SHA256),--sha256 "$(SHA256)") $(if $(SWHID),--swhid "$(SWHID)") \
		$(if $(KEY),--key "$(KEY)") $(if $(SIGNED),--signed)

cite:  ## print how to cite an archive: make cite EXP=06 [RUN=...] or make cite FILE=...
	@test -n "$(EXP)$(FILE)" || { echo "make $@: which experiment? Say for example: make $@ EXP=06" >&2; exit 2; }
	$(SETUP)
	@$(PY) -m labcore cite $(if $(FILE),--file "$(FILE)","$(EXP)") $(if $(RUN),--run "$(RUN)") $(ARGS)

key:  ## make a key pair for signing archives, the private key outside of the repository: make key [NAME=...] [KEY=path]
	$(SETUP) sign
	@$(PY) -m labcore key $(if $(NAME),"$(NAME)") $(if $(KEY),--key "$(KEY)")

diff:  ## compare two runs or archives: make diff A=06/1a2b B=path/of/a/run
	$(SETUP)
	@$(PY) -m labcore diff "$(A)" "$(B)"

replicate:  ## run archived sources in a fresh environment and compare: make replicate EXP=06 [RUN=...] or FILE=archive
	@test -n "$(EXP)$(FILE)" || { echo "make $@: which experiment? Say for example: make $@ EXP=06" >&2; exit 2; }
	$(SETUP)
	@$(PY) -m labcore replicate $(if $(FILE),--file "$(FILE)","$(EXP)") $(if $(RUN),--run "$(RUN)") $(ARGS)

show:  ## show an experiment's kept run, controls and claims: make show EXP=06
	$(EXPERIMENT)
	$(SETUP)
	@$(PY) -m labcore show "$(EXP)"

battery:  ## is each request alone in your cache? make battery TARGET=module:factory [ARGS=--quick] (docs/battery.md)
	@test -n "$(TARGET)" || { echo "make $@: which system? Say for example: make $@ TARGET=mine.py:factory" >&2; exit 2; }
	$(SETUP)
	@$(PY) -m labcore battery "$(TARGET)" $(ARGS)

completion:  ## make bash complete the overrides of a run: eval "$(make -s completion)"
	$(SETUP)
	@$(PY) -m labcore completion

list:  ## list the experiments, their kept runs and verdicts
	$(SETUP)
	@$(PY) -m labcore list

new:  ## write the skeleton of a new experiment: make new EXP=23_name
	$(EXPERIMENT)
	$(SETUP)
	@$(PY) -m labcore new "$(EXP)"

test:  ## install the rest, lint, type-check and run all tests
	$(SETUP) test torch tokenizers sign
	@$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy
	@$(PY) -m pytest -n 2 --dist loadfile $(ARGS)

oracles:  ## check archives with other people's validators (an environment of its own, not part of make test)
	$(SETUP) test sign oracles
	@place=$$(mktemp -d) && trap 'rm -rf "$$place"' EXIT && $(PY) -m tests.archives.tampering "$$place" && \
		.venv-oracles/bin/python tools/oracles.py --tampered "$$place" $(ARGS)

test-site:  ## build the report and try it in a headless Chromium (installs Debian's where there is none)
	$(SETUP) site browser
	@command -v chromium chromium-browser google-chrome >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
		|| { echo "make test-site: no Chromium, and apt-get could not install it" >&2; exit 3; }
	@$(PY) -m pytest -c browser/pytest.ini browser $(ARGS)

notebooks:  ## open the guided tours in JupyterLab
	$(SETUP) notebooks
	@$(PY) notebooks/pair.py && $(PY) -m jupyterlab --notebook-dir=notebooks --LabApp.app_settings_dir=notebooks/lab \
		--LabApp.default_url=/lab/tree/1_one_case_by_hand.ipynb $(ARGS)

test-notebooks:  ## run every notebook in a kernel and compare it with its paired text
	$(SETUP) notebooks
	@$(PY) -m pytest -c notebooks/pytest.ini notebooks $(ARGS)

bench:  ## measure speed and memory as ratios inside one run
	$(SETUP) test
	@$(PY) -m bench $(ARGS)

campaign:  ## the long searches: mutants of the evidence and of the auditor, the pool's random test
	$(SETUP) test
	@$(PY) tools/campaign.py $(ARGS)
	@$(PY) tools/auditor_mutants.py
	@$(PY) tools/pool_campaign.py

report:  ## build the static report in site/
	$(SETUP) site
	@$(PY) -m labcore report $(ARGS)

readme:  ## write the generated tables of README.md from the kept audits
	$(SETUP)
	@$(PY) -m labcore readme

clean:  ## remove local runs, after asking (YES=1 does not ask)
	$(SETUP)
	@$(PY) -m labcore clean $(if $(YES),--yes)

lock:  ## resolve requirements/*.in into hashed lock files (needs uv)
	@command -v uv >/dev/null 2>&1 || { echo "make lock: uv not found; pip install uv" >&2; exit 3; }
	@requirements/lock.sh

format:  ## format the code
	$(SETUP) test
	@$(PY) -m ruff check --fix . && $(PY) -m ruff format .
