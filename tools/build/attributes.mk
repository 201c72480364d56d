# The rules of cuDeviceGetAttribute, from libgleamcuda/api/attributes.toml. Part of every generated source of the library.

GEN_LIBRARY += $(O)/gen/attributes.c
GENERATED += $(O)/gen/attributes.c

$(O)/gen/attributes.c: libgleamcuda/api/attributes.toml tools/apigen/attributes.py broker/proto/cuda_abi.h
	$(call say,APIGEN,$@)
	@mkdir -p $(@D)
	$(Q)$(PYTHON) -B tools/apigen/attributes.py --abi broker/proto/cuda_abi.h --out $(O)/gen $<
