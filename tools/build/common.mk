# Flags and the three macros every fragment uses:
#
#   $(call program,PATH,SOURCES,LIBS)		a program at $(O)/PATH
#   $(call shared,PATH,SOURCES,LIBS,LDFLAGS)	a shared library at $(O)/PATH
#   $(call unit,NAME,SOURCES,LIBS)		a cmocka test at $(O)/tests/unit/NAME, run by `make check`
#
# SOURCES are .c files relative to the top, or generated ones under $(O)/gen. Every object is
# position independent, so that one object serves programs and libraries alike.

CC ?= gcc
PKG_CONFIG ?= pkg-config
PYTHON ?= python3
PREFIX ?= /usr/local
DESTDIR ?=
VERSION := $(shell cat tools/build/version)

comma := ,
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-7s %s\n' '$(1)' '$(2)')

CPPFLAGS += -D_GNU_SOURCE -I. -I$(O) -DGLEAM_VERSION='"$(VERSION)"'
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla \
	-Wno-unused-parameter
CFLAGS ?= -O2 -g
ALL_CFLAGS = -std=gnu11 $(WARNINGS) $(if $(WERROR),-Werror) -fPIC -fvisibility=hidden -fno-strict-aliasing \
	-fno-common -pthread $(CFLAGS) $(SAN_FLAGS)
SAN_FLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer $(if $(filter undefined,$(SAN)),-fno-sanitize-recover=undefined) \
	$(if $(findstring thread,$(SAN)),-Wno-unknown-warning-option -Wno-tsan))
ALL_LDFLAGS = -pthread -Wl,--as-needed $(LDFLAGS) $(SAN_FLAGS)

ALL_OUTPUTS :=
UNIT_TESTS :=
OBJECTS :=
# What must be generated before anything is compiled; fragments add to it.
GENERATED :=

objects = $(patsubst %.c,$(O)/obj/%.o,$(patsubst $(O)/gen/%,gen/%,$(1)))

define program
ALL_OUTPUTS += $(O)/$(1)
OBJECTS += $(call objects,$(2))
$(O)/$(1): $(call objects,$(2))
	$$(call say,LINK,$(1))
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(ALL_CFLAGS) -o $$@ $(call objects,$(2)) $$(ALL_LDFLAGS) $(3)
endef

define shared
ALL_OUTPUTS += $(O)/$(1)
OBJECTS += $(call objects,$(2))
$(O)/$(1): $(call objects,$(2))
	$$(call say,SHARED,$(1))
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(ALL_CFLAGS) -shared -o $$@ $(call objects,$(2)) $$(ALL_LDFLAGS) $(4) $(3)
endef

define unit
UNIT_TESTS += $(O)/tests/unit/$(1)
OBJECTS += $(call objects,$(2))
$(O)/tests/unit/$(1): $(call objects,$(2))
	$$(call say,LINK,tests/unit/$(1))
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(ALL_CFLAGS) -o $$@ $(call objects,$(2)) $$(ALL_LDFLAGS) $(3) -lcmocka
endef
