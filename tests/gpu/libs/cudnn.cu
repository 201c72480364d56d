// SPDX-License-Identifier: Apache-2.0
// cuDNN: a convolution forward, by each algorithm that it offers in single precision and by tensor cores in half, softmax,
// pooling, an activation; and one convolution by the graph interface, as frameworks use it.
#include "lib.h"
#include <cuda_fp16.h>
#include <cudnn.h>

static const int images = 2, from = 16, to = 24, size = 20, kernel = 3;
static cudnnHandle_t handle;

static std::vector<double> convolve(const std::vector<float> &x, const std::vector<float> &w)
{
	std::vector<double> y(images * to * size * size);

	for (int n = 0; n < images; n++)
		for (int k = 0; k < to; k++)
			for (int p = 0; p < size; p++)
				for (int q = 0; q < size; q++) {
					double sum = 0;

					for (int c = 0; c < from; c++)
						for (int r = 0; r < kernel; r++)
							for (int s = 0; s < kernel; s++) {
								int h = p + r - 1, v = q + s - 1;

								if (h < 0 || h >= size || v < 0 || v >= size)
									continue;
								sum += (double)x[((n * from + c) * size + h) * size + v] *
								       w[((k * from + c) * kernel + r) * kernel + s];
							}
					y[((n * to + k) * size + p) * size + q] = sum;
				}
	return y;
}

static std::vector<float> input, weights;
static std::vector<double> output;

template <typename T> static void convolution(cudnnDataType_t type, bool tensor_cores, double tolerance, const char *what)
{
	Device<T> dx(std::vector<T>(input.begin(), input.end())), dw(std::vector<T>(weights.begin(), weights.end()));
	Device<T> dy(images * to * size * size);
	cudnnTensorDescriptor_t x, y;
	cudnnFilterDescriptor_t w;
	cudnnConvolutionDescriptor_t c;
	cudnnConvolutionFwdAlgoPerf_t found[CUDNN_CONVOLUTION_FWD_ALGO_COUNT];
	float one = 1, zero = 0;
	int count = 0, used = 0;

	MUST(cudnnCreateTensorDescriptor(&x));
	MUST(cudnnCreateTensorDescriptor(&y));
	MUST(cudnnCreateFilterDescriptor(&w));
	MUST(cudnnCreateConvolutionDescriptor(&c));
	MUST(cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, type, images, from, size, size));
	MUST(cudnnSetTensor4dDescriptor(y, CUDNN_TENSOR_NCHW, type, images, to, size, size));
	MUST(cudnnSetFilter4dDescriptor(w, type, CUDNN_TENSOR_NCHW, to, from, kernel, kernel));
	MUST(cudnnSetConvolution2dDescriptor(c, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
	MUST(cudnnSetConvolutionMathType(c, tensor_cores ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH));
	MUST(cudnnGetConvolutionForwardAlgorithm_v7(handle, x, w, c, y, CUDNN_CONVOLUTION_FWD_ALGO_COUNT, &count, found));
	for (int i = 0; i < count; i++) {
		if (found[i].status != CUDNN_STATUS_SUCCESS)
			continue;
		Device<char> work(found[i].memory + 1);
		MUST(cudaMemset(dy.at, 0xff, dy.count * sizeof(T)));
		MUST(cudnnSetConvolutionMathType(c, found[i].mathType));
		cudnnStatus_t status = cudnnConvolutionForward(handle, &one, x, dx.at, w, dw.at, c, found[i].algo, work.at,
							       found[i].memory, &zero, y, dy.at);
		/* The list is a guess; what is not supported says so. */
		if (status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000)
			continue;
		MUST(status);
		double by = difference(dy.get(), output);
		CHECK(by <= tolerance, "%s by algorithm %d differs by %g", what, (int)found[i].algo, by);
		used++;
	}
	CHECK(used > 0, "%s: no algorithm of %d", what, count);
	printf("%s: %d algorithms\n", what, used);
	MUST(cudnnDestroyConvolutionDescriptor(c));
	MUST(cudnnDestroyFilterDescriptor(w));
	MUST(cudnnDestroyTensorDescriptor(x));
	MUST(cudnnDestroyTensorDescriptor(y));
}

static void others()
{
	const int classes = 100, rows = 30;
	std::vector<float> in = random_floats(rows * classes, 8);
	std::vector<double> want(rows * classes);
	Device<float> dx(in), dy(rows * classes), pooled(rows * classes / 4);
	cudnnTensorDescriptor_t x, y;
	cudnnActivationDescriptor_t activation;
	cudnnPoolingDescriptor_t pooling;
	float one = 1, zero = 0;

	for (int r = 0; r < rows; r++) {
		double sum = 0;

		for (int i = 0; i < classes; i++)
			sum += std::exp((double)in[r * classes + i]);
		for (int i = 0; i < classes; i++)
			want[r * classes + i] = std::exp((double)in[r * classes + i]) / sum;
	}
	MUST(cudnnCreateTensorDescriptor(&x));
	MUST(cudnnCreateTensorDescriptor(&y));
	MUST(cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, rows, classes, 1, 1));
	MUST(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one, x, dx.at, &zero, x, dy.at));
	CHECK_CLOSE(dy.get(), want, 1e-5, "softmax");
	MUST(cudnnCreateActivationDescriptor(&activation));
	MUST(cudnnSetActivationDescriptor(activation, CUDNN_ACTIVATION_TANH, CUDNN_PROPAGATE_NAN, 0));
	MUST(cudnnActivationForward(handle, activation, &one, x, dx.at, &zero, x, dy.at));
	for (size_t i = 0; i < in.size(); i++)
		want[i] = std::tanh((double)in[i]);
	CHECK_CLOSE(dy.get(), want, 1e-5, "tanh");
	MUST(cudnnDestroyActivationDescriptor(activation));
	MUST(cudnnCreatePoolingDescriptor(&pooling));
	MUST(cudnnSetPooling2dDescriptor(pooling, CUDNN_POOLING_MAX, CUDNN_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2));
	MUST(cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, rows, 10, 10));
	MUST(cudnnSetTensor4dDescriptor(y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, rows, 5, 5));
	MUST(cudnnPoolingForward(handle, pooling, &one, x, dx.at, &zero, y, pooled.at));
	want.assign(rows * 25, 0);
	for (int i = 0; i < rows * 25; i++) {
		const float *at = &in[i / 25 * 100 + i % 25 / 5 * 20 + i % 5 * 2];

		want[i] = std::fmax(std::fmax(at[0], at[1]), std::fmax(at[10], at[11]));
	}
	CHECK_CLOSE(pooled.get(), want, 0, "pooling");
	MUST(cudnnDestroyPoolingDescriptor(pooling));
	MUST(cudnnDestroyTensorDescriptor(x));
	MUST(cudnnDestroyTensorDescriptor(y));
}

typedef cudnnBackendDescriptor_t part;

static part make(cudnnBackendDescriptorType_t type)
{
	part made;

	MUST(cudnnBackendCreateDescriptor(type, &made));
	return made;
}

static void set(part of, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
	MUST(cudnnBackendSetAttribute(of, name, type, count, values));
}

// NHWC, as tensor cores want it.
static part tensor(int64_t id, int64_t n, int64_t c, int64_t h, int64_t w)
{
	part made = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	int64_t sizes[] = {n, c, h, w}, strides[] = {c * h * w, 1, c * w, c}, alignment = 16;
	cudnnDataType_t type = CUDNN_DATA_HALF;

	set(made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
	set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, sizes);
	set(made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
	set(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
	set(made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
	MUST(cudnnBackendFinalize(made));
	return made;
}

static std::vector<__half> channels_last(const std::vector<float> &in, int n, int c, int hw)
{
	std::vector<__half> out(in.size());

	for (int i = 0; i < n; i++)
		for (int j = 0; j < c; j++)
			for (int k = 0; k < hw; k++)
				out[(i * hw + k) * c + j] = __float2half(in[(i * c + j) * hw + k]);
	return out;
}

static void graph()
{
	Device<__half> dx(channels_last(input, images, from, size * size)), dw(channels_last(weights, to, from, kernel * kernel));
	Device<__half> dy(images * to * size * size);
	part x = tensor('x', images, from, size, size), y = tensor('y', images, to, size, size), w = tensor('w', to, from, kernel, kernel);
	part convolution = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR), all = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
	part operation = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR), heuristic = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	int64_t dimensions = 2, ones[] = {1, 1}, ids[] = {'x', 'y', 'w'}, count = 0, workspace = 0, got = 0;
	cudnnDataType_t compute = CUDNN_DATA_FLOAT;
	cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
	cudnnBackendHeurMode_t way = CUDNN_HEUR_MODE_A;
	void *pointers[] = {dx.at, dy.at, dw.at};
	float alpha = 1, beta = 0;
	std::vector<part> engines;
	std::vector<double> want(output.size());
	int used = 0;

	set(convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dimensions);
	set(convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
	set(convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
	set(convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, ones);
	set(convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, ones);
	set(convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones);
	set(convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, ones);
	MUST(cudnnBackendFinalize(convolution));
	set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
	set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w);
	set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
	set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &convolution);
	set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &alpha);
	set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &beta);
	MUST(cudnnBackendFinalize(operation));
	set(all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &operation);
	set(all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
	MUST(cudnnBackendFinalize(all));
	set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &all);
	set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &way);
	MUST(cudnnBackendFinalize(heuristic));
	MUST(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL));
	count = count > 4 ? 4 : count;
	for (int64_t i = 0; i < count; i++)
		engines.push_back(make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
	MUST(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &got, engines.data()));
	for (int i = 0; i < images; i++)
		for (int k = 0; k < to; k++)
			for (int p = 0; p < size * size; p++)
				want[(i * size * size + p) * to + k] = output[(i * to + k) * size * size + p];
	for (int64_t i = 0; i < got && i < count; i++) {
		part plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);

		set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
		set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engines[i]);
		if (cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS) {
			int64_t one_value;

			MUST(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &one_value, &workspace));
			Device<char> work((size_t)workspace + 1);
			set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers);
			set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids);
			set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &work.at);
			MUST(cudnnBackendFinalize(pack));
			/* cuDNN's stream doesn't wait for the legacy one, nor that for it. */
			MUST(cudaMemset(dy.at, 0xff, dy.count * 2));
			MUST(cudaDeviceSynchronize());
			MUST(cudnnBackendExecute(handle, plan, pack));
			MUST(cudaDeviceSynchronize());
			double by = difference(dy.get(), want);
			CHECK(by <= 2e-3, "the graph's plan %d differs by %g", (int)i, by);
			used++;
		}
		MUST(cudnnBackendDestroyDescriptor(plan));
		MUST(cudnnBackendDestroyDescriptor(pack));
	}
	CHECK(used > 0, "no plan of %d", (int)got);
	printf("graph: %d plans\n", used);
	for (part each : engines)
		MUST(cudnnBackendDestroyDescriptor(each));
	for (part each : {heuristic, all, operation, convolution, x, y, w})
		MUST(cudnnBackendDestroyDescriptor(each));
}

int main()
{
	cudaStream_t stream;

	lib_device();
	printf("cuDNN %zu\n", cudnnGetVersion());
	input = random_floats(images * from * size * size, 1);
	weights = random_floats(to * from * kernel * kernel, 2);
	output = convolve(input, weights);
	MUST(cudnnCreate(&handle));
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	MUST(cudnnSetStream(handle, stream));
	convolution<float>(CUDNN_DATA_FLOAT, false, 1e-4, "convolution in single precision");
	convolution<__half>(CUDNN_DATA_HALF, true, 2e-2, "convolution in half precision");
	others();
	graph();
	MUST(cudnnDestroy(handle));
	MUST(cudaStreamDestroy(stream));
	return lib_end();
}
