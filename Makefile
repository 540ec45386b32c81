# `make` lists the targets. All needs only python3 (3.11 or later), g++, make and perl; the rest comes from PyPI into .venv.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help venv tools demo examples test test-quick test-slots test-slow test-verilog test-widths interop node-interop soft-roce soft-roce-shell captures pages soak hostile kills swaps formal lint format bench area area-xilinx bitstream netlist node model speed clean
.DELETE_ON_ERROR:

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

tools:
	@need() { command -v $$1 >/dev/null || { echo "$$1 is missing: sudo apt install $$2" >&2; exit 1; }; }; \
	need $(PYTHON) "python3 python3-venv"; need g++ g++; need perl perl
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than 3.11: sudo apt install python3.11 python3.11-venv, then make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make environments: sudo apt install python3-venv" >&2; exit 1; }

# The stamp is newer than pyproject.toml as long as nothing has to be installed.
$(READY): pyproject.toml | tools
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

venv: $(READY) ## Set up .venv with all that development needs

demo: $(READY) ## Move a file between two simulated adapters (FILE=path WIDTH=)
	$(BIN)/python -m verbena.sim.demo $(if $(WIDTH),--data-width $(WIDTH)) $(if $(FILE),"$$FILE")

examples: $(READY) ## Run the programs of examples/, and compare what they print with what they say
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest -q tests/examples

test: $(READY) ## Run the tests: of blocks, whole adapters at 64 bits, driver, tools (takes 8 to 40 minutes, as the machine is)
	$(BIN)/python -m verbena.sim.model
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder --ignore=tests/formal --ignore=tests/tshark --ignore=tests/browser --ignore=tests/verilog -m 'not slow and not compared and not few_slots' tests

test-slots: $(READY) ## Run those of whole adapters for every width at 512 bits, with slots for 4 queue pairs (EVERY=4 for a quarter of each file; takes 5 to 20 minutes)
	$(BIN)/python -m verbena.sim.model --data-width 512 --slots 4
	VERBENA_DATA_WIDTH=512 VERBENA_SLOTS=4 $(BIN)/python -m pytest -q -n 2 --dist loadfile -m '(every_width or few_slots) and not slow' $(if $(EVERY),--one-in $(EVERY)) tests/adapter

test-quick: $(READY) ## Run the blocks' and the driver's unit tests, half a second of each, without the slow ones and Verilator (takes 2 minutes)
	PATH="$(abspath $(BIN)):$$PATH" PYTHONPATH=tests $(BIN)/python -m pytest -q -n 2 --dist worksteal -p quick -m 'not verilator' tests/hdl tests/sw tests/sim

test-slow: $(READY) ## Run the tests that make test leaves out: more cases, boards, other speeds (EVERY=4 for a quarter; takes 25 to 50 minutes)
	$(BIN)/python -m verbena.boards.sim --compile
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest -q -m 'slow or few_slots' $(if $(EVERY),--one-in $(EVERY)) --ignore=tests/verilog --ignore=tests/browser tests

test-verilog: $(READY) ## Compare each block with its Verilog, cycle by cycle, in its tests (ONLY=tests/hdl/... EVERY=3 for a third; takes 10 to 20 minutes)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest -q tests/verilog
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python tests/verilog $(if $(EVERY),--every $(EVERY)) $(ONLY)

test-widths: $(READY) ## Run the whole adapters' tests at 512 bits, and a short set at 128 and 256 (WIDTHS=128, EVERY=4 for a quarter of each file; takes about 10 minutes)
	for width in $(or $(WIDTHS),128 256); do \
		$(BIN)/python -m verbena.sim.model --data-width $$width && \
		VERBENA_DATA_WIDTH=$$width $(BIN)/python -m pytest -q -m every_width $(if $(EVERY),--one-in $(EVERY)) tests/adapter || exit 1; done
	$(BIN)/python -m verbena.sim.model --data-width 512
	VERBENA_DATA_WIDTH=512 VERBENA_FRAMES=7000 $(BIN)/python -m pytest -q -n 2 --dist worksteal -m 'not slow' $(if $(EVERY),--one-in $(EVERY)) tests/adapter

interop: $(READY) ## Run the adapter against Linux' Soft-RoCE in QEMU (ONLY=pattern EVERY=3 for a third, SEED= SLOTS=4; takes 5 to 10 minutes)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python tests/interop $(if $(ONLY),--only '$(ONLY)') $(if $(EVERY),--every $(EVERY)) $(if $(SEED),--seed $(SEED)) $(if $(SLOTS),--slots $(SLOTS))

node-interop: $(READY) ## Run a simulated board, at its RGMII pins, against Linux' Soft-RoCE in QEMU (ONLY=pattern SEED=; takes 5 to 25 minutes)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python tests/interop --station node $(if $(ONLY),--only '$(ONLY)') $(if $(SEED),--seed $(SEED))

soft-roce: $(READY) ## Run Soft-RoCE in QEMU and an adapter on one cable, with a Python prompt
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python tests/interop/soft_roce.py

soft-roce-shell: ## Open a shell in the guest of `make soft-roce`
	@$(BIN)/python tests/interop/soft_roce.py --shell

captures: $(READY) ## Have tshark read captures, and test what judges those of `make interop`
	@command -v tshark >/dev/null || { echo "tshark is missing: sudo apt install tshark" >&2; exit 1; }
	$(BIN)/python -m pytest -q tests/tshark

pages: $(READY) ## Have a headless Chromium open the pages of `verbena trace`
	@command -v chromium >/dev/null || { echo "chromium is missing: sudo apt install chromium" >&2; exit 1; }
	$(BIN)/python -m pytest -q tests/browser

formal: $(READY) ## Prove properties of blocks with an SMT solver (EVERY=2 for a half; takes 10 to 15 minutes)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest -q $(if $(EVERY),--one-in $(EVERY)) tests/formal

# Many points on all cores, or on a Dask cluster (SCHEDULER=tcp://HOST:PORT); the folder gets sweep.csv.
SWEEP = PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m verbena.sim.sweep $(if $(JOBS),--jobs $(JOBS)) $(if $(SCHEDULER),--scheduler $(SCHEDULER))

soak: $(READY) ## Run random operations over a bad wire (SEED= LOSS= OPERATIONS= MINUTES= PAIRS= WIDTH= ADAPTERS= UNREST= SLOTS= SWAP_EVERY=; SEEDS=1..8 SCHEDULER= JOBS= for many)
	$(if $(SEEDS),$(SWEEP) --seeds $(SEEDS) --output build/soak-sweep verbena.sim.soak --seed '{seed}' --captures '{folder}',$(BIN)/python -m verbena.sim.soak) \
		$(if $(SEED),--seed $(SEED)) $(if $(LOSS),--loss $(LOSS)) \
		$(if $(OPERATIONS),--operations $(OPERATIONS)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(PAIRS),--pairs $(PAIRS)) \
		$(if $(WIDTH),--width $(WIDTH)) $(if $(ADAPTERS),--adapters $(ADAPTERS)) $(if $(UNREST),--unrest $(UNREST)) $(if $(SLOTS),--slots $(SLOTS)) $(if $(SWAP_EVERY),--swap-every $(SWAP_EVERY))

hostile: $(READY) ## Send mutated frames to an adapter (FRAMES=112000, one in ten is left as it is; WIDTH=), and a quarter as many forged requests
	VERBENA_FRAMES=$(or $(FRAMES),112000) $(if $(WIDTH),VERBENA_DATA_WIDTH=$(WIDTH)) $(BIN)/python -m pytest -q tests/adapter/test_hostile_frames.py tests/adapter/test_forged_requests.py -k 'harm or model'

kills: $(READY) ## Kill a driver in the midst of traffic (KILLS=200; WIDTH=)
	VERBENA_KILLS=$(or $(KILLS),200) $(if $(WIDTH),VERBENA_DATA_WIDTH=$(WIDTH)) $(BIN)/python -m pytest -q tests/adapter/test_lives.py -m '' -k driver_is_killed

# Not more often than every 8192 cycles where the memory takes 2000: what was fetched would be gone before it is used.
swaps: $(READY) ## Run the whole adapters' tests and a soak while queue pairs give their state away and get it back (EVERY=8192; takes 10 to 20 minutes)
	$(BIN)/python -m verbena.sim.model --swap-every $(or $(EVERY),8192)
	VERBENA_SWAP_EVERY=$(or $(EVERY),8192) $(BIN)/python -m pytest -q -n 2 --dist loadfile -m 'not slow and not exact' tests/adapter
	$(BIN)/python -m verbena.sim.soak --seed 3 --loss 1 --operations 4000 --swap-every 1500

lint: $(READY) ## Check format and style; `make format` mends what can be mended
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .

format: $(READY) ## Format, and mend what the linter can mend
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format --quiet .

bench: $(READY) ## Measure cycles per message; writes build/bench.json and build/bench.png (WIDTH= ALL=1 ONLY="group"; WIDTHS=64,128 SCHEDULER= JOBS= for many)
	$(if $(WIDTHS),$(SWEEP) --grid data-width=$(WIDTHS) --result '{folder}/bench.json' -x size -y payload_bytes_per_cycle \
		--output build/bench-sweep verbena.sim.bench --output '{folder}/bench.json',$(BIN)/python -m verbena.sim.bench $(if $(WIDTH),--data-width $(WIDTH))) \
		$(if $(ALL),--all) $(if $(ONLY),--only '$(ONLY)')

area: $(READY) ## Synthesize, place and route for ECP5; writes build/area.json (SEEDS="1 2 3" ENGINE="everything" QUICK=1; takes half an hour to one and a half a seed)
	$(BIN)/python -m verbena.boards.area $(if $(ENGINE),--engine '$(ENGINE)') $(if $(SEEDS),--seeds $(SEEDS)) $(if $(QUICK),--no-blocks)

area-xilinx: $(READY) ## Synthesize for UltraScale+ at 64 and 512 bits; writes build/area_xcup.json (takes about a quarter of an hour)
	$(BIN)/python -m verbena.boards.area_xilinx

bitstream: $(READY) ## Build build/BOARD/top.bit with a report (BOARD=, some or `all`; BOARD_FILE= SEEDS="1 2 3" QUICK=1; without BOARD, list them)
	$(BIN)/python -m verbena.boards.build $(BOARD) \
		$(if $(BOARD_FILE),--board-file '$(BOARD_FILE)') $(if $(SEEDS),--seeds $(SEEDS)) $(if $(QUICK),--no-blocks)

netlist: $(READY) ## Pass the demo's traffic through what synthesis makes of the engine (takes about a quarter of an hour)
	$(BIN)/python -m verbena.boards.netlist

node: $(READY) ## Move data between a simulated board, at its RGMII pins, and an adapter, and measure
	$(BIN)/python -m verbena.boards.sim

model: $(READY) ## Compile the engine for simulation (cached below build/)
	$(BIN)/python -m verbena.sim.model

speed: $(READY) ## Measure the speed of the simulation
	$(BIN)/python -m verbena.sim.speed

clean: ## Remove build/ (the environment stays)
	rm -rf build
