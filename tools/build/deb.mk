# Debian packages: see tools/deb/build.
#
#   make deb	$(O)/deb/gleam-{client,node,dkms,doc}_*.deb

.PHONY: deb build-deb
deb:
	$(Q)tools/setup deb
	$(Q)$(MAKE) --no-print-directory build-deb
build-deb: all dkms
	$(Q)O='$(O)' VERSION='$(VERSION)' tools/deb/build
