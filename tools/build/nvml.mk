# libnvidia-ml.so.1 for clients.

NVML_SOURCES := $(sort $(wildcard libgleamcuda/nvml/*.c))

$(eval $(call shared,lib/libnvidia-ml.so.1,$(NVML_SOURCES),-ldl,-Wl$(comma)-soname$(comma)libnvidia-ml.so.1 \
	-Wl$(comma)--version-script=libgleamcuda/nvml/export.map -Wl$(comma)-z$(comma)defs -Wl$(comma)-Bsymbolic))
$(O)/lib/libnvidia-ml.so.1: libgleamcuda/nvml/export.map

# One that measures, for tests.
$(eval $(call shared,tests/fake/libfakenvml.so,tests/fake/fake_nvml.c,,))
