# gleamctl: asks and commands the daemon.

GLEAMCTL_SOURCES := $(sort $(wildcard tools/gleamctl/*.c)) broker/lib/key.c broker/lib/fd.c
GLEAMCTL_LIBS := $(shell $(PKG_CONFIG) --libs jansson)

$(eval $(call program,bin/gleamctl,$(GLEAMCTL_SOURCES),$(GLEAMCTL_LIBS)))
