# The software GPU's processor: PTX reader and executor (broker/softgpu/ptx_*.c, exec_*.c), its tests and its fuzzer.
# SOFTGPU_PTX_SOURCES and SOFTGPU_PTX_LIBS are for those who link it.

SOFTGPU_PTX_SOURCES := $(addprefix broker/softgpu/, \
	ptx_unit.c ptx_lex.c ptx_parse.c ptx_parse_body.c ptx_link.c ptx_module.c \
	ptx_decode.c ptx_decode_alu.c ptx_decode_memory.c ptx_decode_flow.c ptx_decode_sync.c \
	ptx_decode_texture.c ptx_decode_matrix.c \
	exec_pool.c exec_launch.c exec_warp.c exec_barrier.c exec_call.c exec_memory.c exec_atomic.c exec_sync.c exec_texture.c exec_matrix.c \
	exec_sreg.c exec_lanes_base.c exec_lanes_avx2.c)
SOFTGPU_PTX_LIBS := -lm

# Loops over lanes are worth nothing unless vectorised. Contraction is off: PTX says itself where it wants fma.
softgpu_lanes := $(O)/obj/broker/softgpu/exec_lanes_base.o $(O)/obj/broker/softgpu/exec_lanes_avx2.o
$(softgpu_lanes): ALL_CFLAGS += -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math
ifneq ($(filter x86_64%,$(shell $(CC) -dumpmachine)),)
$(O)/obj/broker/softgpu/exec_lanes_avx2.o: ALL_CFLAGS += -mavx2 -mfma -mbmi2 -mf16c
endif
$(O)/obj/broker/softgpu/exec_memory.o $(O)/obj/broker/softgpu/exec_warp.o: ALL_CFLAGS += -O3

softgpu_ptx_tests := $(filter-out test_ptx,$(patsubst tests/unit/%.c,%,$(sort $(wildcard tests/unit/test_ptx_*.c))))
$(O)/obj/tests/unit/test_ptx.o $(O)/obj/tests/unit/test_ptx_module.o: CPPFLAGS += -DTEST_KERNELS='"$(abspath tests/cuda/kernels)"'
$(O)/obj/tests/unit/test_ptx_elements.o: ALL_CFLAGS += -ffp-contract=off
$(O)/obj/tests/unit/test_ptx_forms.o $(O)/obj/tests/unit/test_ptx_forms_base.o: ALL_CFLAGS += -ffp-contract=off -frounding-math
$(foreach test,$(softgpu_ptx_tests),$(eval $(call unit,$(test),tests/unit/$(test).c tests/unit/test_ptx.c \
	$(SOFTGPU_PTX_SOURCES),$(SOFTGPU_PTX_LIBS))))
