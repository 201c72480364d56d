# gleam-bench, and make bench: it with the software GPU, in under two minutes.

$(eval $(call program,bin/gleam-bench,$(sort $(wildcard tools/gleam-bench/*.c)),-ldl -lm))

.PHONY: bench bench-grid
bench: all
	$(Q)GLEAM_OUT=$(abspath $(O)) tests/bench/soft
bench-grid: all
	$(Q)GLEAM_OUT=$(abspath $(O)) nice -n -12 tests/bench/grid --turns 7 --json $(abspath $(O))/grid.json --svg $(abspath $(O))/grid.svg
