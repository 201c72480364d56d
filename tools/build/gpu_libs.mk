# make gpu-libs: programs with NVIDIA's libraries for a machine with a real GPU (tests/gpu/suite), where nvcc is. They are
# linked dynamically and find the libraries there, so they are small.

ifneq ($(NVCC),)
GPU_LIBS := $(patsubst tests/gpu/libs/%.cu,%,$(sort $(wildcard tests/gpu/libs/*.cu)))
GPU_LIBS_PROGRAMS := $(foreach name,$(GPU_LIBS),$(O)/gpu-libs/$(name))
CUDA_LIBRARIES := $(dir $(NVCC))../lib64

GPU_LIBS_FLAGS_cublas := -lcublas
GPU_LIBS_FLAGS_cublaslt := -lcublasLt
GPU_LIBS_FLAGS_cudnn := -lcudnn
GPU_LIBS_FLAGS_cufft := -lcufft
GPU_LIBS_FLAGS_curand := -lcurand
GPU_LIBS_FLAGS_cusolver := -lcusolver
GPU_LIBS_FLAGS_cusparse := -lcusparse
GPU_LIBS_FLAGS_graphblas := -lcublas
GPU_LIBS_FLAGS_nccl := -lnccl
GPU_LIBS_FLAGS_nvjitlink := -lnvJitLink -lnvrtc -lcuda
GPU_LIBS_FLAGS_nvrtc := -lnvrtc -lcuda

# Libraries that a library needs are looked for where the program runs.
$(O)/gpu-libs/%: tests/gpu/libs/%.cu tests/gpu/libs/lib.h tests/gpu/libs/rtc.h
	$(call say,NVCC,$@)
	@mkdir -p $(@D)
	$(Q)$(NVCC) -O2 -std=c++17 $(NVCC_ARCHES) -Xcompiler -Wall,-Wextra,-Wno-unused-parameter -Wno-deprecated-declarations \
		-cudart shared -L$(CUDA_LIBRARIES)/stubs -Xlinker --allow-shlib-undefined,--as-needed,-rpath='$$ORIGIN/../lib' \
		-o $@ $< $(GPU_LIBS_FLAGS_$*)

.PHONY: gpu-libs
gpu-libs: $(GPU_LIBS_PROGRAMS)
else
gpu-libs:
	@echo 'no nvcc here: programs with the libraries of CUDA are not built'
endif
