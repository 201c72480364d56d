# gleam-bench, and make bench: it with the software GPU, in under two minutes.

$(eval $(call program,bin/gleam-bench,$(sort $(wildcard tools/gleam-bench/*.c)),-ldl -lm))

.PHONY: bench
bench: all
	$(Q)GLEAM_OUT=$(abspath $(O)) tests/bench/soft
