# SPDX-License-Identifier: Apache-2.0
"""Processes forked after CUDA is in use, that never touch it, live, die and are killed while the parent goes on; one that does
touch it gets PyTorch's error, not a crash or a hang."""
import os
import signal

import result

torch = result.torch_ready()

x = torch.randn(512, 512, device="cuda")
w = torch.randn(512, 512, device="cuda") / 23
before = (x @ w).sum().item()
losses = [before]
for turn in range(6):
	read, write = os.pipe()
	child = os.fork()
	if not child:
		os.close(read)
		if turn == 4:
			os.kill(os.getpid(), signal.SIGKILL)
		if turn == 5:
			try:
				torch.zeros(1, device="cuda")
				os.write(write, b"worked")
			except RuntimeError as error:
				os.write(write, b"refused" if "fork" in str(error) else str(error).encode()[:200])
		else:
			os.write(write, str(sum(range(100000 + turn))).encode())
		# As worker processes end.
		os._exit(0)
	os.close(write)
	for _ in range(5):
		x = torch.tanh(x @ w)
	losses.append(x.sum().item())
	with os.fdopen(read) as pipe:
		told = pipe.read()
	_, status = os.waitpid(child, 0)
	if turn == 4:
		result.check(os.WIFSIGNALED(status), "status", status)
	elif turn == 5:
		result.check(told == "refused", "CUDA after a fork:", told)
	else:
		result.check(status == 0 and told == str(sum(range(100000 + turn))), "child", turn, status, told)


class Squares(torch.utils.data.Dataset):
	def __len__(self):
		return 64

	def __getitem__(self, index):
		return torch.tensor(float(index * index))


loader = torch.utils.data.DataLoader(Squares(), batch_size=8, num_workers=3, multiprocessing_context="fork")
for _ in range(2):
	total = sum(batch.cuda().sum().item() for batch in loader)
	result.check(total == sum(i * i for i in range(64)), "total", total)
result.add(*losses, x)
result.end()
