# gleam-worker: plays one client's commands on a driver.

WORKER_SOURCES := $(sort $(filter-out broker/worker/main.c,$(wildcard broker/worker/*.c)))
WORKER_USES := broker/lib/ring.c broker/lib/shm.c broker/lib/fatbin.c broker/lib/fatbin_elf.c
WORKER_LIBS := -lseccomp -llz4 -lzstd -ldl

$(eval $(call program,bin/gleam-worker,broker/worker/main.c $(WORKER_SOURCES) $(WORKER_USES) $(GEN_WORKER),$(WORKER_LIBS)))
