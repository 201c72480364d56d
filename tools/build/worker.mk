# gleam-worker: plays one client's commands on a driver.

WORKER_SOURCES := $(sort $(filter-out broker/worker/main.c,$(wildcard broker/worker/*.c)))
WORKER_USES := broker/lib/ring.c broker/lib/shm.c broker/lib/slot.c broker/lib/fatbin.c broker/lib/fatbin_elf.c broker/lib/fatbin_print.c broker/lib/imagevars.c broker/lib/pointers.c
WORKER_LIBS := -lseccomp -llz4 -lzstd -ldl

$(eval $(call program,bin/gleam-worker,broker/worker/main.c $(WORKER_SOURCES) $(WORKER_USES) $(GEN_WORKER),$(WORKER_LIBS)))

# --- tests ----------------------------------------------------------------------------------------

FAKE_LDFLAGS := -Wl,-Bsymbolic -Wl,-z,nodelete
# A driver that fails by plan, which tests of the worker open by its path.
$(eval $(call shared,lib/libfakecuda.so,tests/fake/fake_driver.c,,$(FAKE_LDFLAGS)))

$(eval $(call shared,lib/libfakeclient.so,tests/fake/fake_client_library.c,,))

WORKER_TESTS := $(patsubst tests/unit/%.c,%,$(sort $(wildcard tests/unit/test_worker_*.c)))
$(foreach test,$(WORKER_TESTS),$(eval $(call unit,$(test),tests/unit/$(test).c tests/unit/worker_session.c \
	$(if $(findstring _move_,$(test)),tests/unit/worker_broker.c) $(WORKER_SOURCES) \
	$(WORKER_USES) $(GEN_WORKER),$(WORKER_LIBS))))
$(foreach test,$(WORKER_TESTS),$(eval $(O)/tests/unit/$(test): | $(O)/lib/libfakecuda.so $(O)/lib/libfakeclient.so \
	$(O)/lib/libsoftcuda.so $(O)/bin/gleam-worker))

$(eval $(call unit,test_pointers,tests/unit/test_pointers.c broker/lib/pointers.c))
$(eval $(call unit,test_imagevars,tests/unit/test_imagevars.c broker/lib/imagevars.c))
