# Unit tests of the library's core: contexts, devices, private tables, ranges. The session is a fake one.

CLIENT_CORE := $(addprefix libgleamcuda/,call.c cls.c compiled.c context.c device.c errors.c export.c handle.c init.c integrity.c limit.c \
	log.c md2.c off.c peer.c pointer.c primary.c range.c thread.c trace.c) $(addprefix broker/lib/,ring.c shm.c slot.c visible.c error_text.c) \
	$(addprefix $(O)/gen/,api.c attributes.c ops.c trace_args.c) tests/unit/fake_client.c tests/unit/fake_exports.c

$(eval $(call unit,test_md2,tests/unit/test_md2.c libgleamcuda/md2.c libgleamcuda/integrity.c,))
$(eval $(call unit,test_visible,tests/unit/test_visible.c broker/lib/visible.c,))
$(eval $(call unit,test_range,tests/unit/test_range.c libgleamcuda/range.c,))
$(eval $(call unit,test_errors,tests/unit/test_errors.c $(CLIENT_CORE),))
$(eval $(call unit,test_context,tests/unit/test_context.c $(CLIENT_CORE),))
$(eval $(call unit,test_export,tests/unit/test_export.c $(CLIENT_CORE),))
$(eval $(call unit,test_pointer,tests/unit/test_pointer.c $(CLIENT_CORE),))
$(eval $(call unit,test_tensormap,tests/unit/test_tensormap.c libgleamcuda/tensormap.c broker/worker/tensormap.c $(O)/gen/ops.c,))
$(eval $(call unit,test_off,tests/unit/test_off.c,))
$(eval $(call unit,test_times,tests/unit/test_times.c,))
$(eval $(call unit,test_crew,tests/unit/test_crew.c libgleamcuda/crew.c,))
$(eval $(call unit,test_late,tests/unit/test_late.c libgleamcuda/late.c libgleamcuda/crew.c $(addprefix broker/lib/,ring.c shm.c slot.c),))
$(eval $(call unit,test_up_arena,tests/unit/test_up_arena.c libgleamcuda/session.c $(addprefix broker/lib/,ring.c shm.c slot.c) $(O)/gen/ops.c,))
