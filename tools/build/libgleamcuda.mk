# libcuda.so.1 for clients: hand-written bodies, generated stubs, and the small shared C of broker/lib.

LIBCUDA_SOURCES := $(wildcard libgleamcuda/*.c) $(GEN_LIBRARY) $(addprefix broker/lib/,ring.c shm.c slot.c fatbin.c fatbin_elf.c visible.c \
	error_text.c)

$(eval $(call shared,lib/libcuda.so.1,$(LIBCUDA_SOURCES),-llz4 -lzstd -lcrypto -ldl,-Wl$(comma)-soname$(comma)libcuda.so.1 \
	-Wl$(comma)--version-script=$(GEN_EXPORT_MAP) -Wl$(comma)-z$(comma)nodelete -Wl$(comma)-z$(comma)defs -Wl$(comma)-Bsymbolic))
$(O)/lib/libcuda.so.1: $(GEN_EXPORT_MAP)

ALL_OUTPUTS += $(O)/lib/libcuda.so
$(O)/lib/libcuda.so: $(O)/lib/libcuda.so.1
	$(Q)ln -sf libcuda.so.1 $@
