// SPDX-License-Identifier: Apache-2.0
// Linear regression by stochastic gradient descent with momentum. What a kernel works on it finds through pointers that lie in
// device memory, so an address that has changed shows.
struct model {
	const float *samples;
	const float *wanted;
	float *weights;
	float *velocity;
	float *error;
	float *loss;
};

// A thread for each sample of the batch.
extern "C" __global__ void forward(const model *m, int features, int batch, int at)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float sum = 0.0f;

	if (i >= batch)
		return;
	for (int k = 0; k < features; k++)
		sum += m->samples[(at + i) * features + k] * m->weights[k];
	m->error[i] = sum - m->wanted[at + i];
}

extern "C" __global__ void loss(const model *m, int batch)
{
	float sum = 0.0f;

	if (blockIdx.x || threadIdx.x)
		return;
	for (int i = 0; i < batch; i++)
		sum += m->error[i] * m->error[i];
	*m->loss = sum / batch;
}

// A thread for each feature.
extern "C" __global__ void update(const model *m, int features, int batch, int at, float rate)
{
	int k = blockIdx.x * blockDim.x + threadIdx.x;
	float gradient = 0.0f;

	if (k >= features)
		return;
	for (int i = 0; i < batch; i++)
		gradient += m->error[i] * m->samples[(at + i) * features + k];
	m->velocity[k] = 0.9f * m->velocity[k] + gradient / batch;
	m->weights[k] -= rate * m->velocity[k];
}

// Words that nothing makes smaller, others in each step.
extern "C" __global__ void scramble(unsigned int *data, unsigned int step, unsigned long long n)
{
	for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < n;
	     i += (unsigned long long)gridDim.x * blockDim.x) {
		unsigned int x = (unsigned int)i * 0x9e3779b9u ^ step * 0x85ebca6bu;

		x ^= x >> 15;
		x *= 0x2c1b3c6du;
		x ^= x >> 12;
		x *= 0x297a2d39u;
		data[i] = x ^ x >> 15;
	}
}
