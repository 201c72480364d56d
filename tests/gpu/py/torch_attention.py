# SPDX-License-Identifier: Apache-2.0
"""Attention in bfloat16 by scaled_dot_product_attention, for five lengths, with and without causality, by each backend that the device
offers; forward and backward, against the plain formula in double precision."""
import math

import result

torch = result.torch_ready()
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

used = {}
for length in (17, 64, 129, 512, 1000):
	for causal in (False, True):
		generator = torch.Generator().manual_seed(length)
		host = [torch.randn(2, 8, length, 64, generator=generator).bfloat16() for _ in range(3)]
		q, k, v = (part.double() for part in host)
		score = q @ k.transpose(-1, -2) / math.sqrt(64)
		if causal:
			score = score.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -math.inf)
		want = score.softmax(-1) @ v
		for name in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"):
			q, k, v = (part.cuda().requires_grad_() for part in host)
			try:
				with sdpa_kernel(getattr(SDPBackend, name)):
					out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
			except RuntimeError as error:
				if "No available kernel" in str(error):
					continue
				raise
			by = (out.detach().cpu().double() - want).abs().max().item()
			result.check(by < 0.04, name, length, causal, "differs by", by)
			used[name] = used.get(name, 0) + 1
			result.add(out)
			# The backward passes of some repeat themselves only when told to: on short ones only.
			if name in ("FLASH_ATTENTION", "MATH") and length <= 129:
				out.float().square().sum().backward()
				result.check(all(torch.isfinite(part.grad).all().item() for part in (q, k, v)), name, "gradients")
				result.add(q.grad, k.grad, v.grad)
print("backends:", used)
result.check(used.get("FLASH_ATTENTION", 0) + used.get("EFFICIENT_ATTENTION", 0) > 0, "no fused attention")
result.end()
