// SPDX-License-Identifier: Apache-2.0
// cuSPARSE: a sparse matrix times a vector and times a dense matrix, and conversions whose counts are read on the host at
// once, without a wait by the program (field case P-002).
#include "lib.h"
#include <cusparse.h>

static const int rows = 400, columns = 300, width = 24;
static cusparseHandle_t handle;

struct Sparse {
	std::vector<int> offset, column;
	std::vector<float> value, dense; /* dense: column major */
};

static Sparse make()
{
	Sparse s;
	Random random(12);

	s.dense.resize(rows * columns);
	for (int r = 0; r < rows; r++) {
		s.offset.push_back((int)s.column.size());
		for (int c = 0; c < columns; c++) {
			float value = random.next();

			if (random.bits() % 11 || value == 0)
				continue;
			s.column.push_back(c);
			s.value.push_back(value);
			s.dense[c * rows + r] = value;
		}
	}
	s.offset.push_back((int)s.column.size());
	return s;
}

static void products(const Sparse &s)
{
	std::vector<float> x = random_floats(columns, 3), b = random_floats(columns * width, 4);
	Device<int> offset(s.offset), column(s.column);
	Device<float> value(s.value), dx(x), dy(rows), db(b), dc(rows * width);
	cusparseSpMatDescr_t a;
	cusparseDnVecDescr_t vx, vy;
	cusparseDnMatDescr_t mb, mc;
	float one = 1, zero = 0;
	size_t size = 0;

	MUST(cusparseCreateCsr(&a, rows, columns, (int64_t)s.value.size(), offset.at, column.at, value.at, CUSPARSE_INDEX_32I,
			       CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
	MUST(cusparseCreateDnVec(&vx, columns, dx.at, CUDA_R_32F));
	MUST(cusparseCreateDnVec(&vy, rows, dy.at, CUDA_R_32F));
	MUST(cusparseSpMV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, vx, &zero, vy, CUDA_R_32F,
				     CUSPARSE_SPMV_CSR_ALG2, &size));
	Device<char> work(size + 1);
	MUST(cusparseSpMV(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, vx, &zero, vy, CUDA_R_32F, CUSPARSE_SPMV_CSR_ALG2, work.at));
	CHECK_CLOSE(dy.get(), matmul(s.dense.data(), x.data(), rows, 1, columns), 1e-5, "SpMV");
	MUST(cusparseCreateDnMat(&mb, columns, width, columns, db.at, CUDA_R_32F, CUSPARSE_ORDER_COL));
	MUST(cusparseCreateDnMat(&mc, rows, width, rows, dc.at, CUDA_R_32F, CUSPARSE_ORDER_COL));
	MUST(cusparseSpMM_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, mb, &zero, mc,
				     CUDA_R_32F, CUSPARSE_SPMM_CSR_ALG2, &size));
	Device<char> more(size + 1);
	MUST(cusparseSpMM(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, mb, &zero, mc, CUDA_R_32F,
			  CUSPARSE_SPMM_CSR_ALG2, more.at));
	CHECK_CLOSE(dc.get(), matmul(s.dense.data(), b.data(), rows, width, columns), 1e-5, "SpMM");
	MUST(cusparseDestroySpMat(a));
	MUST(cusparseDestroyDnVec(vx));
	MUST(cusparseDestroyDnVec(vy));
	MUST(cusparseDestroyDnMat(mb));
	MUST(cusparseDestroyDnMat(mc));
}

// How many there are is told on the host; memory is allocated by it at once, on a stream that has work.
static void conversions(const Sparse &s)
{
	Device<float> dense(s.dense);
	Device<int> offset(rows + 1), each(rows);
	cusparseDnMatDescr_t from;
	cusparseSpMatDescr_t to;
	cusparseMatDescr_t general;
	int64_t r = 0, c = 0, count = -1;
	size_t size = 0;
	int legacy = -1;

	MUST(cusparseCreateDnMat(&from, rows, columns, rows, dense.at, CUDA_R_32F, CUSPARSE_ORDER_COL));
	MUST(cusparseCreateCsr(&to, rows, columns, 0, offset.at, NULL, NULL, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
			       CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
	MUST(cusparseDenseToSparse_bufferSize(handle, from, to, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, &size));
	Device<char> work(size + 1);
	MUST(cusparseDenseToSparse_analysis(handle, from, to, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, work.at));
	MUST(cusparseSpMatGetSize(to, &r, &c, &count));
	CHECK(count == (int64_t)s.value.size(), "%lld values after the analysis, not %zu", (long long)count, s.value.size());
	Device<int> column((size_t)(count > 0 ? count : 1));
	Device<float> value((size_t)(count > 0 ? count : 1));
	MUST(cusparseCsrSetPointers(to, offset.at, column.at, value.at));
	MUST(cusparseDenseToSparse_convert(handle, from, to, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, work.at));
	/* The conversion runs on a stream that the copies below don't wait for. */
	MUST(cudaDeviceSynchronize());
	/* In which order a row's values come is cuSPARSE's business. */
	std::vector<int> told_offset = offset.get(), told_column = column.get();
	std::vector<float> told_value = value.get(), again(s.dense.size());
	for (int row = 0; row < rows; row++)
		for (int k = told_offset[row]; k < told_offset[row + 1] && k < (int)told_column.size(); k++)
			if (told_column[k] >= 0 && told_column[k] < columns)
				again[told_column[k] * rows + row] = told_value[k];
	CHECK(told_offset == s.offset, "from dense to sparse: where rows begin");
	CHECK(again == s.dense, "from dense to sparse: values");
	/* The older interface writes the total to the host. */
	MUST(cusparseCreateMatDescr(&general));
	MUST(cusparseSnnz(handle, CUSPARSE_DIRECTION_ROW, rows, columns, general, dense.at, rows, each.at, &legacy));
	CHECK(legacy == (int)s.value.size(), "cusparseSnnz counts %d, not %zu", legacy, s.value.size());
	each.get();
	MUST(cusparseDestroyMatDescr(general));
	MUST(cusparseDestroyDnMat(from));
	MUST(cusparseDestroySpMat(to));
}

// Rows become columns: CSR to CSC.
static void turned(const Sparse &s)
{
	const size_t count = s.value.size();
	Device<int> offset(s.offset), column(s.column), column_offset(columns + 1), row(count);
	Device<float> value(s.value), out(count);
	std::vector<float> want;
	size_t size = 0;

	for (float v : s.dense)
		if (v != 0)
			want.push_back(v);
	MUST(cusparseCsr2cscEx2_bufferSize(handle, rows, columns, (int)count, value.at, offset.at, column.at, out.at, column_offset.at,
					   row.at, CUDA_R_32F, CUSPARSE_ACTION_NUMERIC, CUSPARSE_INDEX_BASE_ZERO,
					   CUSPARSE_CSR2CSC_ALG1, &size));
	Device<char> work(size + 1);
	MUST(cusparseCsr2cscEx2(handle, rows, columns, (int)count, value.at, offset.at, column.at, out.at, column_offset.at, row.at,
				CUDA_R_32F, CUSPARSE_ACTION_NUMERIC, CUSPARSE_INDEX_BASE_ZERO, CUSPARSE_CSR2CSC_ALG1, work.at));
	CHECK(out.get() == want, "from rows to columns");
	row.get();
	column_offset.get();
}

int main()
{
	Sparse s = make();
	cudaStream_t stream;

	lib_device();
	MUST(cusparseCreate(&handle));
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	MUST(cusparseSetStream(handle, stream));
	for (int turn = 0; turn < 10; turn++)
		conversions(s);
	products(s);
	turned(s);
	MUST(cusparseDestroy(handle));
	MUST(cudaStreamDestroy(stream));
	return lib_end();
}
