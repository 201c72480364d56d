# Tests: what `make check` and `make fuzz` run.
#
#   make check [T=pattern] [J=jobs]	set-up, build, every test (or those whose name has the pattern in it)
#   make run-tests [T=pattern]		the same without set-up
#   make fuzz [FUZZ=name] [FUZZ_SECONDS=60]	libFuzzer, each target for that long
#
# A test is found by where it is: a unit program by the `unit` macro, a script by its folder. A fuzz
# target tests/fuzz/fuzz_NAME.c names what it is linked with in a comment line
#
#   // sources: broker/lib/codec.c gen/wire.c libs: -lz
#
# and `make check` replays tests/fuzz/corpus/NAME through it, built by the ordinary compiler.

TEST_TOOL_SOURCES := tests/lib/control.c tests/lib/value.c

$(eval $(call program,tests/lab/lanem,$(sort $(wildcard tests/lab/lanem*.c)) $(TEST_TOOL_SOURCES),))
$(eval $(call program,tests/lab/rawtcp,tests/lab/rawtcp.c,))
$(eval $(call program,tests/lab/launchcost,tests/lab/launchcost.c,-ldl))
$(eval $(call program,tests/fault/gleam-chaos,$(sort $(wildcard tests/fault/chaos*.c)) $(TEST_TOOL_SOURCES),))
$(eval $(call unit,test_lanem_lane,tests/unit/test_lanem_lane.c tests/lab/lanem_lane.c,))
$(eval $(call unit,test_lanem_conf,tests/unit/test_lanem_conf.c tests/lab/lanem_conf.c tests/lib/value.c,))
$(eval $(call unit,test_lanem_relay,tests/unit/test_lanem_relay.c tests/lab/lanem_relay.c tests/lab/lanem_lane.c,))
$(eval $(call unit,test_chaos_pipe,tests/unit/test_chaos_pipe.c tests/fault/chaos_pipe.c tests/fault/chaos_conf.c \
	tests/lib/value.c,))

SCRIPT_TESTS := $(sort $(foreach dir,unit e2e wire cuda,$(wildcard tests/$(dir)/*.sh) \
	$(wildcard tests/$(dir)/test_*.py)))

# What a sanitizer costs in time.
TEST_SLOW := $(if $(SAN),4,1)
J ?= 2

# --- fuzz targets ---------------------------------------------------------------------------------

FUZZ_TARGETS := $(patsubst tests/fuzz/%.c,%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))
FUZZ_SECONDS ?= 60
FUZZ_CC ?= clang
FUZZ_REPLAYS :=
# All sources of a target are compiled in one go, without dependency files.
FUZZ_HEADERS := $(wildcard broker/*/*.h libgleamcuda/*.h tests/lib/*.h)

fuzz_line = $(shell sed -n 's|^// sources:||p' tests/fuzz/$(1).c)
fuzz_sources = $(patsubst gen/%,$(O)/gen/%,$(shell echo '$(call fuzz_line,$(1))' | sed 's/libs:.*//'))
fuzz_libs = $(shell echo '$(call fuzz_line,$(1))' | sed -n 's/.*libs://p')

define fuzz_target
FUZZ_REPLAYS += $(O)/tests/fuzz/$(1)
OBJECTS += $(call objects,tests/fuzz/$(1).c tests/lib/fuzz_replay.c $(2))
$(O)/tests/fuzz/$(1): $(call objects,tests/fuzz/$(1).c tests/lib/fuzz_replay.c $(2))
	$$(call say,LINK,tests/fuzz/$(1))
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(ALL_CFLAGS) -o $$@ $$^ $$(ALL_LDFLAGS) $(3)

$(O)/fuzz/$(1)/$(1): tests/fuzz/$(1).c $(2) $(FUZZ_HEADERS) | $$(GENERATED)
	$$(call say,FUZZCC,$(1))
	@mkdir -p $$(@D)
	$$(Q)$(FUZZ_CC) $$(CPPFLAGS) -std=gnu11 $$(WARNINGS) -O1 -g -pthread -fno-omit-frame-pointer \
		-fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -o $$@ $$(filter %.c,$$^) $(3)

.PHONY: run-$(1)
run-$(1): $(O)/fuzz/$(1)/$(1)
	$$(Q)tests/lib/fuzz-run $(1) $(O)/fuzz/$(1) $(FUZZ_SECONDS)
endef
$(foreach name,$(FUZZ_TARGETS),$(eval $(call fuzz_target,$(name),$(call fuzz_sources,$(name)),$(call fuzz_libs,$(name)))))

.PHONY: check run-tests fuzz fuzz-run-all
# In a make of its own, since fragments ask pkg-config while they are read.
fuzz:
	$(Q)tools/setup fuzz
	$(Q)$(MAKE) --no-print-directory fuzz-run-all
fuzz-run-all: $(addprefix run-,$(if $(FUZZ),$(filter fuzz_$(FUZZ) $(FUZZ),$(FUZZ_TARGETS)),$(FUZZ_TARGETS)))
	$(Q)echo 'fuzz: $(words $^) targets, $(FUZZ_SECONDS) s each'

# --- the suite ------------------------------------------------------------------------------------

check:
	$(Q)tools/setup check
	$(Q)$(MAKE) --no-print-directory run-tests

check-long:
	$(Q)tools/setup check
	$(Q)GLEAM_LONG=1 $(MAKE) --no-print-directory run-tests
.PHONY: check-long

# UNIT_TESTS is complete when this recipe runs, not yet while this fragment is read.
run-tests: all unit-tests $(FUZZ_REPLAYS)
	$(Q)$(PYTHON) tests/run -j $(J) --out $(O) --slow $(TEST_SLOW) $(if $(AGAIN),--again $(AGAIN)) $(if $(T),--only '$(T)') \
		$(UNIT_TESTS) $(FUZZ_REPLAYS) $(SCRIPT_TESTS)
