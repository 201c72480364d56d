# make demo: everything it needs is set up, built and shown.

.PHONY: demo run-demo
demo:
	$(Q)tools/setup demo
	$(Q)$(MAKE) --no-print-directory -j$(shell nproc) run-demo
run-demo: all cuda-runtime
	$(Q)O='$(O)' tools/demo/demo
