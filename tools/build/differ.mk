# make differ SEEDS=10000 [FIRST=1]: random programs of the driver API, directly on the software GPU and through Gleam.
# `make check` runs some hundred of them (tests/e2e/differ.sh).

SEEDS ?= 10000
FIRST ?= 1
.PHONY: differ
differ: all
	$(Q)GLEAM_OUT=$(abspath $(O)) GLEAM_TOP=$(CURDIR) tests/cuda/differ-soft $(FIRST):$(SEEDS)
