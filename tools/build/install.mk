# make install and uninstall: see tools/install/install.

.PHONY: install uninstall
install: all
	$(Q)O='$(O)' PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' SYSCONFDIR='$(SYSCONFDIR)' tools/install/install add

uninstall:
	$(Q)O='$(O)' PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' SYSCONFDIR='$(SYSCONFDIR)' tools/install/install remove
SYSCONFDIR ?= /etc
