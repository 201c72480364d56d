# Pattern rules and top-level targets; included last, when every fragment has spoken.

OBJECTS := $(sort $(OBJECTS))

$(O)/obj/gen/%.o: $(O)/gen/%.c | $(GENERATED)
	$(call say,CC,gen/$*.c)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(O)/obj/%.o: %.c | $(GENERATED)
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

-include $(OBJECTS:.o=.d)

.PHONY: all clean check-unit
all: $(ALL_OUTPUTS)

unit-tests: $(UNIT_TESTS)

clean:
	rm -rf $(O)
