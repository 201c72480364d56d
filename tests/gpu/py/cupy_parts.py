# SPDX-License-Identifier: Apache-2.0
"""CuPy: kernels from source, element-wise and reduction kernels, FFT, matrix products, solvers, the memory pool, streams, sparse
matrices."""
import result

cupy, numpy = result.need("cupy", "numpy")


def close(got, want, tolerance, what):
	got = cupy.asnumpy(got)
	by = float(numpy.abs(got - want).max() / max(1e-30, numpy.abs(want).max()))
	result.check(by <= tolerance, what, "differs by", by)
	result.add(got)


rng = numpy.random.default_rng(5)
a, b = rng.standard_normal((200, 300), dtype=numpy.float32), rng.standard_normal((300, 100), dtype=numpy.float32)
da, db = cupy.asarray(a), cupy.asarray(b)
raw = cupy.RawKernel(r'''
extern "C" __global__ void turn(const float *in, float *out, int rows, int columns, float by)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < rows * columns)
		out[i % columns * rows + i / columns] = in[i] * by;
}''', "turn")
out = cupy.empty((300, 200), dtype=cupy.float32)
raw((235,), (256,), (da, out, 200, 300, cupy.float32(2)))
close(out, a.T * 2, 0, "a raw kernel")
module = cupy.RawModule(code="template <typename T> __global__ void add(T *x, T by) { x[threadIdx.x] += by; }",
			options=("-std=c++17",), name_expressions=("add<float>", "add<double>"))
x = cupy.zeros(64, dtype=cupy.float64)
module.get_function("add<double>")((1,), (64,), (x, 1.5))
close(x, numpy.full(64, 1.5), 0, "a template")
squares = cupy.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = (x - y) * (x - y)", "squares")
close(squares(da, 1), (a - 1) ** 2, 1e-6, "element-wise")
close(da.sum(axis=0), a.astype(float).sum(axis=0), 1e-5, "a reduction")
close(da @ db, a.astype(float) @ b, 1e-3, "a product")
close(cupy.fft.fft2(da[:, :256]), numpy.fft.fft2(a[:, :256].astype(float)), 1e-5, "fft2")
close(cupy.fft.rfft(da), numpy.fft.rfft(a.astype(float)), 1e-5, "rfft")
square = a[:, :200].astype(float) + 20 * numpy.eye(200)
close(cupy.linalg.solve(cupy.asarray(square), cupy.asarray(b[:200].astype(float))), numpy.linalg.solve(square, b[:200].astype(float)),
      1e-9, "solve")
close(cupy.sort(da, axis=1), numpy.sort(a, axis=1), 0, "sort")
generator = cupy.random.RandomState(11)
numbers = generator.standard_normal(10000)
result.check(abs(float(numbers.mean())) < 0.05, "random numbers")
result.add(cupy.asnumpy(numbers))

from cupyx.scipy import sparse  # noqa: E402

dense = numpy.where(numpy.abs(a) > 1.5, a, 0)
matrix = sparse.csr_matrix(cupy.asarray(dense))
result.check(matrix.nnz == numpy.count_nonzero(dense), "nnz", matrix.nnz)
close(matrix @ db, dense.astype(float) @ b, 1e-5, "a sparse product")

pool = cupy.get_default_memory_pool()
before = pool.total_bytes()
held = [cupy.full(1 << 18, i, dtype=cupy.float32) for i in range(20)]
result.check(pool.used_bytes() >= 20 << 20 and pool.total_bytes() >= before, "the pool has", pool.used_bytes())
result.check(all(float(v[-1]) == i for i, v in enumerate(held)), "contents")
del held
pool.free_all_blocks()
cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
	y = cupy.arange(1 << 20, dtype=cupy.float64)
	z = (y * 2 + 1).sum()
stream.synchronize()
result.check(float(z) == float(1 << 40), "a sum on a stream", float(z))
result.add(cupy.asnumpy(z))
pinned = cupy.cuda.alloc_pinned_memory(1 << 20)
host = numpy.frombuffer(pinned, dtype=numpy.float64, count=1 << 17)
y[:1 << 17].get(out=host, stream=stream)
stream.synchronize()
result.check(host[-1] == (1 << 17) - 1, "page-locked memory")
result.end()
