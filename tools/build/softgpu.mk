# The software GPU: libsoftcuda.so, a driver API of its own over a processor for PTX. And the image reader.

SOFTGPU_FRONT := $(sort $(wildcard broker/softgpu/soft_*.c))
SOFTGPU_PROCESSOR := $(sort $(wildcard broker/softgpu/ptx_*.c broker/softgpu/exec_*.c broker/softgpu/lanes_*.c))
FATBIN_SOURCES := broker/lib/fatbin.c broker/lib/fatbin_elf.c
FATBIN_LIBS := -lzstd -llz4

# What is exported beside the written entry points: per-thread variants, refusals, the table of names.
$(O)/gen/softgpu/soft_exports.c $(O)/gen/softgpu/soft_api.h &: broker/softgpu/soft_symbols.py \
		broker/softgpu/soft_symbols.txt $(SOFTGPU_FRONT)
	$(call say,GEN,gen/softgpu/soft_exports.c)
	@mkdir -p $(@D)
	$(Q)$(PYTHON) broker/softgpu/soft_symbols.py broker/softgpu/soft_symbols.txt $(O)/gen/softgpu/soft_exports.c \
		$(O)/gen/softgpu/soft_api.h $(SOFTGPU_FRONT)

GENERATED += $(O)/gen/softgpu/soft_api.h

SOFTGPU_SOURCES := $(SOFTGPU_FRONT) $(SOFTGPU_PROCESSOR) $(O)/gen/softgpu/soft_exports.c $(FATBIN_SOURCES) \
	broker/lib/visible.c broker/lib/error_text.c

# Names bind inside the library: a libcuda of ours in the same process must not be called instead. It stays loaded:
# its threads may be anywhere when somebody closes it.
# (A sanitizer's own names are found only in the program.)
SOFTGPU_LDFLAGS := -Wl,-Bsymbolic -Wl,-z,nodelete $(if $(SAN),,-Wl,-z,defs) -Wl,-soname,libsoftcuda.so
$(eval $(call shared,lib/libsoftcuda.so,$(SOFTGPU_SOURCES),$(FATBIN_LIBS) -lm,$(SOFTGPU_LDFLAGS)))

# One more reading of the lane functions, for processors that have these; chosen at run time.
$(O)/obj/broker/softgpu/exec_lanes_avx2.o: ALL_CFLAGS += -mavx2 -mfma -mf16c -ffp-contract=off

# --- tests ----------------------------------------------------------------------------------------

SOFTGPU_TESTS := $(patsubst tests/unit/%.c,%,$(sort $(wildcard tests/unit/test_soft_*.c)))
$(foreach test,$(SOFTGPU_TESTS),$(eval $(call unit,$(test),tests/unit/$(test).c tests/unit/soft_driver.c,-ldl -lm)))
$(foreach test,$(SOFTGPU_TESTS),$(eval $(O)/tests/unit/$(test): | $(O)/lib/libsoftcuda.so))
$(eval $(call unit,test_fatbin,tests/unit/test_fatbin.c $(FATBIN_SOURCES),$(FATBIN_LIBS)))
$(eval $(call unit,test_fatbin_print,tests/unit/test_fatbin_print.c broker/lib/fatbin_print.c $(FATBIN_SOURCES),$(FATBIN_LIBS)))
$(eval $(call unit,test_sampler,tests/unit/test_sampler.c broker/softgpu/soft_sampler.c,-lm))
