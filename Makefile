# Gleam: one Makefile; what is built is declared in tools/build/*.mk, one fragment a component.
#
#   make [O=out] [V=1] [SAN=address|undefined|thread] [CC=clang] [target]
#
# Nothing is written outside $(O), except by install.

.DEFAULT_GOAL := all
O ?= out

include tools/build/common.mk
include $(sort $(filter-out tools/build/common.mk,$(wildcard tools/build/*.mk)))
include tools/build/rules/final.mk
