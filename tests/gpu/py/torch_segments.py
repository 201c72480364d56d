# SPDX-License-Identifier: Apache-2.0
"""PyTorch's expandable segments (virtual memory that grows piece by piece): tensors of growing sizes, fragmentation, giving back."""
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import result  # noqa: E402

torch = result.torch_ready()

held = {}
generator = torch.Generator().manual_seed(3)
for turn in range(120):
	size = int(torch.randint(1, 12 << 20, (1,), generator=generator))
	held[turn] = torch.full((size,), float(turn % 97), device="cuda")
	if turn >= 8:
		gone = held.pop(turn - 1 - turn % 8, None)
		del gone
	if turn % 40 == 39:
		torch.cuda.empty_cache()
for turn, tensor in held.items():
	result.check(tensor[0].item() == turn % 97 and tensor[-1].item() == turn % 97, "tensor", turn)
	result.add(turn, tensor.numel(), tensor.double().sum())
expandable = [segment for segment in torch.cuda.memory_snapshot() if segment.get("is_expandable")]
print(f"{len(expandable)} expandable segments of {len(torch.cuda.memory_snapshot())}")
result.check(len(expandable) > 0, "no segment is expandable")
weight = torch.randn(1024, 1024, generator=generator).cuda() / 32
x = torch.randn(512, 1024, generator=generator).cuda()
for _ in range(5):
	x = torch.relu(x @ weight)
result.add(x)
held.clear()
torch.cuda.empty_cache()
result.check(torch.cuda.memory_reserved() < 256 << 20, "reserved", torch.cuda.memory_reserved())
result.end()
