# The kernel module (docs/kernel.md).
#
#   make kmod [KDIR=folder] [LLVM=-14] [CONFIG_GLEAM_DEBUG=y]	$(O)/kmod/gleam.ko
#   make check-kmod			its tests, in QEMU with Debian's kernel; also one test of `make check`
#   make check-kmod-debug DEBUG_KERNEL=folder	with a debug kernel: bzImage and its headers package, as
#						`make debug-kernel` makes them into $(O)/debug-kernel
#   make kmod-lint			W=1, sparse, checkpatch, where they are
#   make dkms				$(O)/dkms/gleam-VERSION, to be copied to /usr/src
#
# KDIR: the running kernel's headers if they are there, else the newest below /usr/src. Sources are copied to
# $(O)/kmod, because Kbuild writes beside them.

KMOD_RUNNING := /lib/modules/$(shell uname -r)/build
KDIR ?= $(if $(wildcard $(KMOD_RUNNING)/Module.symvers),$(KMOD_RUNNING),$(patsubst %/Module.symvers,%,$(lastword \
	$(shell ls -1d /usr/src/linux-headers-*/Module.symvers /lib/modules/*/build/Module.symvers 2>/dev/null | sort -V))))
KMOD_OUT ?= $(abspath $(O))/kmod
KMOD_TEST_SOURCES := $(sort $(wildcard tests/kmod/*.c)) broker/lib/ring.c broker/lib/shm.c broker/lib/slot.c

# Static, since the guest has no libraries; so not with a sanitizer.
ifeq ($(SAN),)
$(eval $(call program,tests/kmod/kmod-test,$(KMOD_TEST_SOURCES),-static))
endif

.PHONY: kmod check-kmod check-kmod-debug kmod-lint kmod-copy dkms debug-kernel
kmod-copy:
	@mkdir -p $(KMOD_OUT)/broker/proto
	$(Q)cp -ru kmod/. $(KMOD_OUT)/
	$(Q)cp -u broker/proto/ring.h $(KMOD_OUT)/broker/proto/

# BTF needs vmlinux and pahole, and the module has no use for it.
# Nothing of our own command line goes along: O means something else there.
KMOD_MAKE = env -u MAKEFLAGS -u MFLAGS -u CC -u CFLAGS -u LDFLAGS make --no-print-directory $(if $(V),,-s) -C $(KDIR) \
	M=$(KMOD_OUT) CONFIG_DEBUG_INFO_BTF_MODULES= $(if $(LLVM),LLVM=$(LLVM)) $(if $(C),C=$(C) CF='$(CF)') \
	$(if $(CONFIG_GLEAM_DEBUG),CONFIG_GLEAM_DEBUG=$(CONFIG_GLEAM_DEBUG))

kmod: kmod-copy
	@[ -n '$(KDIR)' ] || { echo 'make kmod: no kernel headers below /lib/modules or /usr/src; tools/setup kmod, or KDIR=folder' >&2; exit 1; }
	$(call say,KMOD,$(KMOD_OUT)/gleam.ko for $(KDIR))
	$(Q)$(KMOD_MAKE) W=1 modules

check-kmod:
	$(Q)tools/setup kmod
	$(Q)$(MAKE) --no-print-directory $(O)/tests/kmod/kmod-test
	$(Q)O=$(O) tests/e2e/kernel-module-in-qemu.sh

DEBUG_KERNEL ?= $(O)/debug-kernel
check-kmod-debug: $(O)/tests/kmod/kmod-test
	$(Q)tools/setup kmod
	$(Q)O=$(O) tests/kmod/debug-run '$(DEBUG_KERNEL)'

debug-kernel:
	$(Q)tests/kmod/debug-kernel '$(O)/debug-kernel'

kmod-lint:
	$(Q)O=$(O) KDIR=$(KDIR) tests/kmod/lint

dkms:
	@rm -rf $(O)/dkms
	@mkdir -p $(O)/dkms/gleam-$(VERSION)/broker/proto
	$(Q)cp -r kmod/. $(O)/dkms/gleam-$(VERSION)/
	$(Q)cp broker/proto/ring.h $(O)/dkms/gleam-$(VERSION)/broker/proto/
	$(Q)sed 's/@VERSION@/$(VERSION)/' kmod/dkms.conf >$(O)/dkms/gleam-$(VERSION)/dkms.conf
	@echo 'cp -r $(O)/dkms/gleam-$(VERSION) /usr/src/ && dkms install gleam/$(VERSION)'
