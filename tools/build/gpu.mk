# make gpu-kit: what a machine with a real GPU needs to run the tests, with the shared libraries that it may lack.

GPU_KIT := $(O)/gpu-kit
.PHONY: gpu-kit
gpu-kit: all cuda-runtime gpu-libs
	@rm -rf $(GPU_KIT)
	@mkdir -p $(GPU_KIT)/bin $(GPU_KIT)/gleam $(GPU_KIT)/lib $(GPU_KIT)/tests
	$(Q)cp $(wildcard $(O)/bin/*) $(O)/tests/lab/lanem $(O)/tests/lab/rawtcp $(O)/tests/lab/launchcost $(GPU_KIT)/bin/
	$(Q)cp $(O)/lib/libcuda.so.1 $(O)/lib/libnvidia-ml.so.1 $(GPU_KIT)/gleam/
	$(Q)cp $(O)/lib/libsoftcuda.so $(GPU_KIT)/lib/
	$(Q)find $(O)/tests/cuda -maxdepth 1 -type f -executable -exec cp {} $(GPU_KIT)/tests/ \;
	$(Q)cp -r $(O)/tests/cuda/kernels $(GPU_KIT)/tests/
	$(Q)cp tests/gpu/run tests/gpu/performance tests/gpu/bulk tests/gpu/launches tests/gpu/migrate tests/gpu/hostmem tests/lib/nvml.py tests/gpu/programs tests/gpu/suite tests/gpu/sched tests/gpu/*.py tests/cuda/differ.py $(GPU_KIT)/
	$(Q)cp tests/gpu/cache $(GPU_KIT)/
	$(Q)mkdir -p $(GPU_KIT)/py && cp tests/gpu/py/*.py $(GPU_KIT)/py/
	$(Q)[ -z "$(NVCC)" ] || { mkdir -p $(GPU_KIT)/libs && cp $(foreach name,$(GPU_LIBS),$(O)/gpu-libs/$(name)) $(GPU_KIT)/libs/; }
	$(Q)[ -z "$(NVCC)" ] || cp $(dir $(NVCC))../lib64/libcudart.so.13 $(GPU_KIT)/lib/
	$(Q)ldd $(GPU_KIT)/bin/* $(GPU_KIT)/gleam/* $(GPU_KIT)/lib/*.so 2>/dev/null | awk '/=> \//{print $$3}' | sort -u | \
		grep -vE '/(libc|libm|ld-linux[^/]*|libpthread|libdl|librt|libcuda|libnvidia-ml)\.so' | xargs -I{} cp -Lu {} $(GPU_KIT)/lib/
	$(Q)find $(GPU_KIT) -type f \( -perm -100 -o -name '*.so*' \) -exec strip --strip-unneeded {} + 2>/dev/null; true
	$(Q)! command -v patchelf >/dev/null || for f in $(GPU_KIT)/bin/*; do patchelf --set-rpath '$$ORIGIN/../lib' $$f; done
	@du -sh $(GPU_KIT)
