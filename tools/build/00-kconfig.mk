# Options of Kconfig: `make defconfig` or `make menuconfig` write $(O)/.config; without one everything is on.

-include $(O)/.config
# An option that the file switched off is a comment in it; without a file the defaults hold.
ifeq ($(wildcard $(O)/.config),)
CONFIG_GLEAM_FUSE := y
CONFIG_GLEAM_SECCOMP := y
CONFIG_GLEAM_SOFTGPU := y
endif

CPPFLAGS += $(foreach option,FUSE SECCOMP SOFTGPU,$(if $(filter y,$(CONFIG_GLEAM_$(option))),-DCONFIG_GLEAM_$(option)=1))

KCONFIG_PYTHON = $(shell $(PYTHON) -c "import kconfiglib" 2>/dev/null && echo $(PYTHON) || echo /usr/bin/python3)

.PHONY: defconfig menuconfig
defconfig:
	$(Q)tools/setup config
	@mkdir -p $(O)
	$(Q)VERSION=$(VERSION) KCONFIG_CONFIG=$(O)/.config $(KCONFIG_PYTHON) -m alldefconfig Kconfig
	@rm -rf $(O)/obj

menuconfig:
	$(Q)tools/setup config
	@mkdir -p $(O)
	$(Q)VERSION=$(VERSION) KCONFIG_CONFIG=$(O)/.config $(KCONFIG_PYTHON) -m menuconfig Kconfig
	@rm -rf $(O)/obj
