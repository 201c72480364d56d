# gleamctl: asks and commands the daemon.

GLEAMCTL_SOURCES := $(sort $(wildcard tools/gleamctl/*.c)) $(addprefix broker/lib/,key.c fd.c conf.c log.c)
GLEAMCTL_LIBS := $(shell $(PKG_CONFIG) --libs jansson ncursesw) -linih

$(eval $(call program,bin/gleamctl,$(GLEAMCTL_SOURCES),$(GLEAMCTL_LIBS)))
