# gleamd, and the tests of its parts.

BROKER_LIB := $(addprefix broker/lib/,ring.c shm.c slot.c fd.c log.c hash.c key.c conf.c json.c visible.c chunk.c)
BROKER_CORE := $(addprefix broker/core/,loop.c record.c pack.c tls.c conn.c hello.c lane.c link.c link_lane.c small.c pings.c address.c jobs.c dial.c held.c)
BROKER_NODE := $(addprefix broker/node/,proc.c pool.c seat.c seat_up.c seat_away.c work.c gate.c setting.c probe.c probe_main.c probe_speed.c gpus.c node.c node_seat.c node_report.c \
	cache.c store.c store_books.c store_bytes.c store_reader.c store_command.c \
	store_disk.c store_memory.c store_part.c store_mark.c origin.c fill.c pour.c ways.c)
# Free of I/O: gleam-sim runs the same.
SCHED := $(addprefix broker/local/,sched.c sched_cost.c sched_move.c sched_profile.c sched_policy_cost.c sched_policy_load.c \
	sched_policy_turn.c sched_policy_pinned.c sched_share.c)
BROKER_LOCAL := $(addprefix broker/local/, \
	server.c route.c client.c client_open.c client_direct.c client_packet.c client_verdict.c verdicts.c flow.c journal.c baton.c \
	adopt.c wire.c move.c move_old.c move_new.c move_way.c move_save.c \
	move_ask.c drain.c control_move.c save.c saver.c aside.c record.c replay.c control_save.c broker.c state.c \
	control.c kdev.c knl.c place.c place_move.c place_store.c place_show.c control_sched.c netwatch.c discover.c \
	discover_line.c) $(SCHED)
BROKER_LOCAL += $(addprefix broker/local/,cache.c cache_client.c cfile.c seen.c control_cache.c prefetch.c)
BROKER_NODE += broker/node/probe_nvml.c
BROKER_LIBS := -lm -luring -llz4 -lssl -lcrypto -linih -ldl $(shell $(PKG_CONFIG) --libs libnl-genl-3.0 libnl-route-3.0)
CPPFLAGS += $(shell $(PKG_CONFIG) --cflags libnl-genl-3.0 libnl-route-3.0)
ifeq ($(CONFIG_GLEAM_FUSE),y)
BROKER_LOCAL += $(addprefix broker/local/,tree.c tree_open.c tree_steady.c tree_node.c tree_file.c tree_mount.c metrics.c)
BROKER_LIBS += $(shell $(PKG_CONFIG) --libs fuse3)
CPPFLAGS += $(shell $(PKG_CONFIG) --cflags fuse3)
endif
BROKER_ALL := $(BROKER_LIB) $(BROKER_CORE) $(BROKER_NODE) $(BROKER_LOCAL)

$(eval $(call program,bin/gleamd,broker/gleamd.c $(BROKER_ALL) $(O)/gen/api.c $(O)/gen/ops.c,$(BROKER_LIBS)))

# --- tests ----------------------------------------------------------------------------------------

FAKE_LIB := broker/lib/ring.c broker/lib/shm.c broker/lib/slot.c broker/lib/hash.c

$(eval $(call program,tests/fake/fake-worker,tests/fake/fake_worker.c $(FAKE_LIB)))
$(eval $(call program,tests/fake/fake-client,tests/fake/fake_client.c tests/fake/fake_session.c $(FAKE_LIB)))
$(eval $(call unit,test_ring,tests/unit/test_ring.c broker/lib/ring.c broker/lib/shm.c broker/lib/slot.c))
$(eval $(call unit,test_fdpass,tests/unit/test_fdpass.c))
$(eval $(call unit,test_words,tests/unit/test_words.c))
$(eval $(call unit,test_conf,tests/unit/test_conf.c broker/lib/conf.c broker/lib/key.c broker/lib/fd.c broker/lib/log.c \
	broker/core/address.c,-linih))
$(eval $(call unit,test_pings,tests/unit/test_pings.c broker/core/pings.c))
$(eval $(call unit,test_lane_choice,tests/unit/test_lane_choice.c))
$(eval $(call unit,test_small,tests/unit/test_small.c broker/core/small.c broker/lib/ring.c broker/lib/shm.c broker/lib/fd.c))
$(eval $(call unit,test_work,tests/unit/test_work.c broker/node/work.c broker/lib/ring.c $(O)/gen/ops.c))
$(eval $(call unit,test_gpus,tests/unit/test_gpus.c broker/node/gpus.c broker/lib/visible.c))
$(eval $(call unit,test_journal,tests/unit/test_journal.c broker/local/journal.c))
$(eval $(call unit,test_verdicts,tests/unit/test_verdicts.c broker/local/verdicts.c))
$(eval $(call unit,test_save,tests/unit/test_save.c broker/local/save.c broker/lib/hash.c,-lcrypto))
$(eval $(call unit,test_replay,tests/unit/test_replay.c broker/local/record.c broker/local/replay.c broker/lib/hash.c broker/lib/shm.c \
	broker/lib/ring.c broker/lib/slot.c))
$(eval $(call unit,test_saver,tests/unit/test_saver.c $(addprefix broker/local/,save.c saver.c aside.c) broker/lib/hash.c broker/core/loop.c \
	broker/lib/fd.c broker/lib/log.c,-luring -lcrypto))
$(eval $(call unit,test_baton,tests/unit/test_baton.c broker/local/baton.c broker/local/journal.c broker/lib/shm.c broker/lib/ring.c broker/lib/slot.c))
$(eval $(call unit,test_json,tests/unit/test_json.c broker/lib/json.c))
$(eval $(call unit,test_loop,tests/unit/test_loop.c broker/core/loop.c broker/lib/fd.c broker/lib/log.c,-luring -lseccomp))
$(eval $(call unit,test_tls,tests/unit/test_tls.c broker/core/tls.c broker/core/record.c broker/lib/chunk.c,-lssl -lcrypto))
$(eval $(call unit,test_pack,tests/unit/test_pack.c broker/core/pack.c,-llz4))
$(eval $(call unit,test_spin,tests/unit/test_spin.c,))
$(eval $(call unit,test_patch,tests/unit/test_patch.c))
$(eval $(call unit,test_origin,tests/unit/test_origin.c broker/node/origin.c,-lpthread))
$(eval $(call unit,test_store,tests/unit/test_store.c $(sort $(wildcard broker/node/store*.c)) \
	broker/core/held.c broker/local/seen.c broker/core/jobs.c broker/lib/chunk.c broker/lib/fd.c broker/lib/log.c,-lcrypto))
