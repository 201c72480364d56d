# Tests of the /gleam tree; the tree itself is part of gleamd, see broker.mk.

$(eval $(call unit,test_tree,tests/unit/test_tree.c broker/local/tree_node.c broker/local/tree_file.c broker/local/metrics.c $(O)/gen/api.c,))
$(eval $(call unit,test_metrics,tests/unit/test_metrics.c broker/local/metrics.c,))
$(eval $(call unit,test_tree_steady,tests/unit/test_tree_steady.c broker/local/tree_steady.c broker/lib/fd.c broker/lib/log.c,-Wl$(comma)--wrap=ioctl))
