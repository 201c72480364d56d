# SPDX-License-Identifier: Apache-2.0
"""Streams inside streams, ordered by events and wait_stream; tensors that pass from one to the other with record_stream, whose memory
must not be used again too early; priorities, timing, queries."""
import result

torch = result.torch_ready()

n = 1 << 20
outer, inner, high = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
weight = torch.randn(512, 512, generator=torch.Generator().manual_seed(1)).cuda() / 22
total = torch.zeros((), device="cuda", dtype=torch.double)
want = 0
for turn in range(60):
	outer.wait_stream(torch.cuda.current_stream())
	with torch.cuda.stream(outer):
		x = torch.full((n,), float(turn), device="cuda")
		ready = torch.cuda.Event()
		ready.record()
		with torch.cuda.stream(inner):
			# Something slow first, so that the order shows.
			slow = weight
			for _ in range(3):
				slow = slow @ weight
			ready.wait()
			y = x * 2 + 1
			x.record_stream(inner)
			done = torch.cuda.Event()
			done.record(inner)
		del x
		# The memory of x is asked for again and overwritten at once.
		other = torch.full((n,), -1e6, device="cuda")
		high.wait_event(done)
		with torch.cuda.stream(high):
			s = y.double().sum()
			y.record_stream(high)
			s.record_stream(torch.cuda.current_stream())
		del y, other
	torch.cuda.current_stream().wait_stream(high)
	torch.cuda.current_stream().wait_stream(outer)
	torch.cuda.current_stream().wait_stream(inner)
	total += s
	want += n * (turn * 2 + 1)
	if turn % 10 == 9:
		result.check(total.item() == want, "turn", turn, "has", total.item(), "not", want)
		result.add(total)
start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
with torch.cuda.stream(inner):
	start.record()
	torch.cuda._sleep(20000000)
	stop.record()
result.check(not stop.query(), "a busy stream says it is done")
stop.synchronize()
result.check(stop.query() and inner.query() and 1 < start.elapsed_time(stop) < 1000, "elapsed", start.elapsed_time(stop))
low, most = torch.cuda.Stream.priority_range() if hasattr(torch.cuda.Stream, "priority_range") else (0, -1)
result.check(most <= -1 and high.priority == -1, "priorities", low, most, high.priority)
result.add(slow)
result.end()
