# SPDX-License-Identifier: Apache-2.0
"""torch.compile of a small network (Triton kernels made at run time), forward and backward, with two shapes; also a Triton kernel of
one's own."""
import os
import tempfile

# Each run compiles anew.
folder = tempfile.TemporaryDirectory()
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", folder.name + "/inductor")
os.environ.setdefault("TRITON_CACHE_DIR", folder.name + "/triton")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import result  # noqa: E402

torch = result.torch_ready()


class Network(torch.nn.Module):
	def __init__(self):
		super().__init__()
		self.one = torch.nn.Linear(64, 128)
		self.two = torch.nn.Linear(128, 32)

	def forward(self, x):
		h = torch.nn.functional.gelu(self.one(x))
		return torch.softmax(self.two(h * torch.sigmoid(h)) + x.mean(), -1)


def main():
	network = Network().cuda()
	compiled = torch.compile(network)
	for rows in (64, 100):
		x = torch.randn(rows, 64, generator=torch.Generator().manual_seed(rows)).cuda()
		network.zero_grad()
		want = network(x)
		want.square().sum().backward()
		gradients = [p.grad.clone() for p in network.parameters()]
		network.zero_grad()
		got = compiled(x)
		got.square().sum().backward()
		result.check(torch.allclose(got, want, atol=1e-4), rows, "rows differ by", (got - want).abs().max().item())
		for p, gradient in zip(network.parameters(), gradients):
			result.check(torch.allclose(p.grad, gradient, atol=1e-4), "a gradient differs by", (p.grad - gradient).abs().max().item())
		result.add(got, *[p.grad for p in network.parameters()])
	result.need("triton")
	from triton_kernel import rows_softmax  # here: it needs Triton

	x = torch.randn(200, 300, generator=torch.Generator().manual_seed(9)).cuda()
	out = torch.empty_like(x)
	rows_softmax[(200,)](x, out, 300, BLOCK=512)
	result.check(torch.allclose(out, torch.softmax(x, -1), atol=1e-6), "softmax by Triton")
	result.add(out)
	result.end()


if __name__ == "__main__":
	main()
