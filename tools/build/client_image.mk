# Unit tests of images, launches and occupancy: the layer of calls is a fake one, with a worker in the test.

CLIENT_IMAGE := $(addprefix libgleamcuda/,answer.c file.c handle.c image.c jit.c kernel.c launch.c library.c module.c \
	occupancy.c occupancy_rule.c program.c range.c variable.c) broker/lib/fatbin.c broker/lib/fatbin_elf.c $(O)/gen/ops.c \
	tests/unit/fake_call.c
CLIENT_IMAGE_LIBS := -lzstd -llz4

$(eval $(call unit,test_image,tests/unit/test_image.c $(CLIENT_IMAGE),$(CLIENT_IMAGE_LIBS)))
$(eval $(call unit,test_verdicts_asked,tests/unit/test_verdicts_asked.c libgleamcuda/verdicts.c libgleamcuda/answer.c,))
$(eval $(call unit,test_launch,tests/unit/test_launch.c $(CLIENT_IMAGE),$(CLIENT_IMAGE_LIBS)))
$(eval $(call unit,test_occupancy,tests/unit/test_occupancy.c $(CLIENT_IMAGE),$(CLIENT_IMAGE_LIBS)))
$(eval $(call unit,test_program_threads,tests/unit/test_program_threads.c $(CLIENT_IMAGE),$(CLIENT_IMAGE_LIBS)))
