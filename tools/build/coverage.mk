# Which functions of the driver API the programs of tests/cuda call: docs/coverage.md. Takes a minute or two.

COVERAGE_LEAST ?= 330

.PHONY: coverage
coverage: all $(CUDA_RUNTIME_PROGRAMS)
	$(Q)GLEAM_OUT='$(abspath $(O))' tests/lib/coverage.sh '$(or $(COVERAGE_OUT),docs/coverage.md)' $(COVERAGE_LEAST)
