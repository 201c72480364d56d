# gleam-sim, and the tests of the scheduler, which it runs as gleamd does.

SCHED := $(addprefix broker/local/,sched.c sched_cost.c sched_profile.c sched_policy_cost.c sched_policy_load.c \
	sched_policy_turn.c sched_policy_pinned.c)

$(eval $(call program,bin/gleam-sim,$(sort $(wildcard tools/gleam-sim/*.c)) $(SCHED),-lm))
