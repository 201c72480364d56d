# Test programs of the driver API: tests/cuda/*.c, linked with our libcuda.so as any program is with the driver's, and
# the PTX of their kernels beside them.

CUDA_PROGRAMS := $(patsubst tests/cuda/%.c,%,$(sort $(wildcard tests/cuda/*.c)))

define cuda_program
$(call program,tests/cuda/$(1),tests/cuda/$(1).c,-L$(O)/lib -lcuda -lm)
$(O)/tests/cuda/$(1): $(O)/lib/libcuda.so
endef
$(foreach name,$(CUDA_PROGRAMS),$(eval $(call cuda_program,$(name))))

CUDA_KERNELS := $(patsubst tests/cuda/%,$(O)/tests/cuda/%,$(wildcard tests/cuda/kernels/*.ptx))
ALL_OUTPUTS += $(CUDA_KERNELS)
$(O)/tests/cuda/kernels/%.ptx: tests/cuda/kernels/%.ptx
	@mkdir -p $(@D)
	$(Q)cp $< $@
