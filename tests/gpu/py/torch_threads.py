# SPDX-License-Identifier: Apache-2.0
"""Six Python threads, each with a stream and a model of its own, work at the same time; each result is that of the thread alone."""
import threading

import result

torch = result.torch_ready()


def work(who, out):
	try:
		stream = torch.cuda.Stream()
		with torch.cuda.stream(stream):
			generator = torch.Generator(device="cuda").manual_seed(who)
			weights = [torch.randn(256, 256, device="cuda", generator=generator) / 16 for _ in range(4)]
			x = torch.randn(64, 256, device="cuda", generator=generator)
			seen = []
			for turn in range(40):
				for weight in weights:
					x = torch.tanh(x @ weight + 0.1)
				if turn % 10 == who % 10:
					seen.append(x.sum().item())
			pinned = torch.empty(x.shape, pin_memory=True)
			pinned.copy_(x, non_blocking=True)
			event = torch.cuda.Event()
			event.record()
			event.synchronize()
			out[who] = (seen, pinned.clone())
	except Exception as error:
		out[who] = error


together, alone = {}, {}
threads = [threading.Thread(target=work, args=(who, together)) for who in range(6)]
for thread in threads:
	thread.start()
for thread in threads:
	thread.join()
for who in range(6):
	work(who, alone)
	for outcome in (together[who], alone[who]):
		if isinstance(outcome, Exception):
			raise outcome
	result.check(together[who][0] == alone[who][0] and torch.equal(together[who][1], alone[who][1]), "thread", who)
	result.add(*together[who][0], together[who][1])
result.end()
