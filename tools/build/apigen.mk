# The API description: everything under $(O)/gen comes from libgleamcuda/api by tools/apigen, in one go.
#
# For other fragments: GEN_STUBS are the exported functions, GEN_LIBRARY all sources of libcuda.so.1 that are generated,
# GEN_WORKER those of gleam-worker, GEN_PRINT the trace printers. A generated file that comes out as it was keeps its time.

APIGEN_TOML := $(filter-out %/attributes.toml,$(sort $(wildcard libgleamcuda/api/*.toml)))
APIGEN_FROM := $(APIGEN_TOML) libgleamcuda/api/numbers.lock broker/proto/cuda_abi.h $(wildcard tools/apigen/*.py)

GEN_STUBS := $(patsubst libgleamcuda/api/%.toml,$(O)/gen/stubs_%.c,$(filter-out %/internal.toml,$(APIGEN_TOML)))
GEN_LIBRARY := $(GEN_STUBS) $(addprefix $(O)/gen/,ops.c api.c procaddr.c trace_args.c)
GEN_WORKER := $(addprefix $(O)/gen/,ops.c dispatch.c drv.c drv_timed.c)
GEN_PRINT := $(O)/gen/print.c $(O)/gen/ops.c
GEN_EXPORT_MAP := $(O)/gen/export.map

APIGEN_OUT := $(sort $(GEN_LIBRARY) $(GEN_WORKER) $(GEN_PRINT) $(GEN_EXPORT_MAP) $(addprefix $(O)/gen/,ops.h ops.dict msg.h api.h bodies.h \
	procaddr.h drv.h worker_bodies.h print.h trace_args.h test_codec.c reference.md))
GENERATED += $(APIGEN_OUT)

$(O)/gen/apigen.stamp: $(APIGEN_FROM)
	$(call say,APIGEN,$(O)/gen)
	@mkdir -p $(@D)
	$(Q)$(PYTHON) -B tools/apigen/apigen.py --out $(O)/gen $(APIGEN_TOML)
	@touch $@

# The recipe does nothing, but it is one: make looks at the file's own time afterwards.
$(APIGEN_OUT): $(O)/gen/apigen.stamp
	@:

.PHONY: apigen-lock
apigen-lock:
	$(Q)$(PYTHON) -B tools/apigen/apigen.py --lock $(APIGEN_TOML)

$(eval $(call unit,test_codec,$(O)/gen/test_codec.c $(GEN_PRINT),))
