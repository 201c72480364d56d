# SPDX-License-Identifier: Apache-2.0
"""Out of memory is an OutOfMemoryError that names what was asked for, and the program goes on: after empty_cache the memory is there
again, and results are right."""
import result

torch = result.torch_ready()

free, total = torch.cuda.mem_get_info()
result.check(0 < free <= total, "memory", free, total)
# Two ways to ask: whether they agree is as natively.
result.add(total, torch.cuda.get_device_properties(0).total_memory)
for turn in range(2):
	held, error = [], None
	piece = max(total // 16, 1 << 28)
	try:
		for _ in range(64):
			held.append(torch.empty(piece, dtype=torch.uint8, device="cuda"))
	except torch.OutOfMemoryError as caught:
		error = str(caught)
	result.check(error is not None and "out of memory" in error and "Tried to allocate" in error, "the error is", error)
	result.check(4 <= len(held) < 64, len(held), "pieces")
	# Small ones still work while all is full, or fail as cleanly.
	try:
		result.check(torch.ones(1000, device="cuda").sum().item() == 1000, "a small sum")
	except torch.OutOfMemoryError:
		pass
	# What is held is what was written.
	held[0].fill_(7)
	held[-1].fill_(9)
	result.check(held[0][-1].item() == 7 and held[-1][0].item() == 9, "contents")
	held.clear()
	torch.cuda.empty_cache()
	again, _ = torch.cuda.mem_get_info()
	result.check(again > free - (1 << 30), "free memory is", again, "after", free)
# A request that no device could meet, ten times.
for _ in range(10):
	try:
		torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
		result.check(False, "a PiB was given")
	except torch.OutOfMemoryError:
		pass
a = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
result.add((a * 2 + 1).sum(), a @ a)
result.check((a[:1000] * 2 + 1).sum().item() == 1000 * 1000, "a sum afterwards")
result.end()
