# Test programs of the driver API: tests/cuda/*.c, linked with our libcuda.so as any program is with the driver's, and
# the PTX of their kernels beside them.

# One source each, but for the differential tester.
CUDA_PROGRAMS := $(filter-out differ%,$(patsubst tests/cuda/%.c,%,$(sort $(wildcard tests/cuda/*.c))))

define cuda_program
$(call program,tests/cuda/$(1),tests/cuda/$(1).c,-L$(O)/lib -lcuda -lm)
$(O)/tests/cuda/$(1): $(O)/lib/libcuda.so
endef
$(foreach name,$(CUDA_PROGRAMS),$(eval $(call cuda_program,$(name))))
$(eval $(call program,tests/cuda/differ,$(sort $(wildcard tests/cuda/differ*.c)),-L$(O)/lib -lcuda))
$(O)/tests/cuda/differ: $(O)/lib/libcuda.so

CUDA_KERNELS := $(patsubst tests/cuda/%,$(O)/tests/cuda/%,$(wildcard tests/cuda/kernels/*.ptx))
ALL_OUTPUTS += $(CUDA_KERNELS)
$(O)/tests/cuda/kernels/%.ptx: tests/cuda/kernels/%.ptx
	@mkdir -p $(@D)
	$(Q)cp $< $@

# The same with the runtime API, where nvcc is: static and shared cudart.
NVCC ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
ifneq ($(NVCC),)
CUDA_RUNTIME := $(patsubst tests/cuda/runtime/%.cu,%,$(sort $(wildcard tests/cuda/runtime/*.cu)))
CUDA_RUNTIME_PROGRAMS := $(foreach name,$(CUDA_RUNTIME),$(O)/tests/cuda/rt_$(name)_static $(O)/tests/cuda/rt_$(name)_shared)
NVCC_ARCHES := -gencode arch=compute_75,code=compute_75 -gencode arch=compute_90,code=sm_90

$(O)/tests/cuda/rt_%_static: tests/cuda/runtime/%.cu
	$(call say,NVCC,$@)
	@mkdir -p $(@D)
	$(Q)$(NVCC) -O2 $(NVCC_ARCHES) -cudart static -o $@ $<
$(O)/tests/cuda/rt_%_shared: tests/cuda/runtime/%.cu
	$(call say,NVCC,$@)
	@mkdir -p $(@D)
	$(Q)$(NVCC) -O2 $(NVCC_ARCHES) -cudart shared -Xlinker -rpath='$$ORIGIN:$$ORIGIN/../lib' -o $@ $<

.PHONY: cuda-runtime
cuda-runtime: $(CUDA_RUNTIME_PROGRAMS)
else
cuda-runtime:
	@echo 'no nvcc here: programs of the runtime API are not built'
endif
