# Unit test of graphs and captures: everything around them is a fake in the test.

$(eval $(call unit,test_graph,tests/unit/test_graph.c $(addprefix libgleamcuda/,capture.c graph.c graph_exec.c graph_memory.c \
	graph_node.c graph_condition.c graph_object.c graph_plan.c graph_send.c graph_update.c graph_work.c handle.c) $(O)/gen/ops.c,))
