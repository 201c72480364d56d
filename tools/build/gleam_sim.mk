# gleam-sim: the scheduler (SCHED, in broker.mk) in a simulated cluster.

$(eval $(call program,bin/gleam-sim,$(sort $(wildcard tools/gleam-sim/*.c)) $(SCHED),-lm))
$(eval $(call unit,test_sched,tests/unit/test_sched.c $(SCHED),-lm))
$(eval $(call unit,test_sched_move,tests/unit/test_sched_move.c $(SCHED),-lm))
$(eval $(call unit,test_sched_share,tests/unit/test_sched_share.c broker/local/sched_share.c,-lm))
$(eval $(call unit,test_discover_line,tests/unit/test_discover_line.c broker/local/discover_line.c,))
