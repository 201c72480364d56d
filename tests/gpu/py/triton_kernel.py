# SPDX-License-Identifier: Apache-2.0
"""A kernel of torch_compile.py: Triton wants it in a file."""
import triton
import triton.language as tl


@triton.jit
def rows_softmax(source, target, columns, BLOCK: tl.constexpr):
	row = tl.program_id(0)
	at = tl.arange(0, BLOCK)
	x = tl.load(source + row * columns + at, mask=at < columns, other=-float("inf"))
	e = tl.exp(x - tl.max(x, 0))
	tl.store(target + row * columns + at, e / tl.sum(e, 0), mask=at < columns)
