# SPDX-License-Identifier: Apache-2.0
"""JAX: jit, grad, scan, vmap, random numbers, a solver, a small training loop, small sizes."""
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# No algorithm is chosen by the clock.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0"

import result  # noqa: E402

jax, numpy = result.need("jax", "numpy")
import jax.numpy as jnp  # noqa: E402

jax.config.update("jax_default_matmul_precision", "highest")
if jax.default_backend() != "gpu":
	print("wrong: JAX's backend is", jax.default_backend())
	print("0 passed, 1 failed", flush=True)
	raise SystemExit(1)


def close(got, want, tolerance, what):
	got = numpy.asarray(got)
	by = float(numpy.abs(got - want).max() / max(1e-30, numpy.abs(want).max()))
	result.check(by <= tolerance, what, "differs by", by)
	result.add(got)


rng = numpy.random.default_rng(6)
a = rng.standard_normal((96, 96), dtype=numpy.float32)
f = jax.jit(lambda x: jnp.tanh(x @ x.T / 10).sum(axis=0))
close(f(a), numpy.tanh(a.astype(float) @ a.T / 10).sum(axis=0), 1e-2, "jit")
g = jax.jit(jax.grad(lambda x: (jnp.sin(x) * x).sum()))
close(g(a), numpy.cos(a) * a + numpy.sin(a), 1e-5, "grad")


def recurrence(carry, x):
	carry = 0.5 * carry + x
	return carry, carry.sum()


last, sums = jax.jit(lambda xs: jax.lax.scan(recurrence, jnp.zeros(96), xs))(a)
want, carry = [], numpy.zeros(96)
for row in a.astype(float):
	carry = 0.5 * carry + row
	want.append(carry.sum())
close(sums, numpy.array(want), 1e-5, "scan")
result.add(numpy.asarray(last))
close(jax.jit(jax.vmap(lambda x, y: jnp.dot(x, y) + x.max()))(a, a[::-1]), (a * a[::-1]).sum(1) + a.max(1), 1e-3, "vmap")
result.add(numpy.asarray(jax.random.normal(jax.random.key(3), (1000,))))
square = a + 20 * numpy.eye(96, dtype=numpy.float32)
close(jnp.linalg.solve(square, a), numpy.linalg.solve(square.astype(float), a), 1e-4, "solve")
close(jnp.fft.fft(a), numpy.fft.fft(a.astype(float)), 1e-5, "fft")
key = jax.random.key(0)
parameters = [jax.random.normal(key, (96, 64)) / 10, jax.random.normal(key, (64, 1)) / 8]
target = jnp.asarray(a[:, :1] * 2)


@jax.jit
def step(parameters):
	def loss(parameters):
		return ((jnp.tanh(a @ parameters[0]) @ parameters[1] - target) ** 2).mean()

	value, gradient = jax.value_and_grad(loss)(parameters)
	return value, [p - 0.05 * d for p, d in zip(parameters, gradient)]


losses = []
for _ in range(30):
	value, parameters = step(parameters)
	losses.append(float(value))
result.check(losses[-1] < 0.7 * losses[0], "it does not learn:", losses[0], losses[-1])
result.add(*losses, *[numpy.asarray(p) for p in parameters])
result.end()
