# gleamctl: asks and commands the daemon.

GLEAMCTL_SOURCES := $(sort $(wildcard tools/gleamctl/*.c)) $(addprefix broker/lib/,key.c fd.c conf.c log.c) \
	broker/core/address.c broker/lib/error_text.c $(addprefix $(O)/gen/,api.c ops.c trace_args.c)
GLEAMCTL_LIBS := $(shell $(PKG_CONFIG) --libs jansson ncursesw libnl-genl-3.0) -linih -lssl -lcrypto

$(eval $(call program,bin/gleamctl,$(GLEAMCTL_SOURCES),$(GLEAMCTL_LIBS)))
$(eval $(call unit,test_conf_edit,tests/unit/test_conf_edit.c $(addprefix tools/gleamctl/,conf_edit.c pair_channel.c) \
	broker/lib/fd.c,-lssl -lcrypto))
$(eval $(call unit,test_top,tests/unit/test_top.c tools/gleamctl/top.c,$(shell $(PKG_CONFIG) --libs jansson)))
