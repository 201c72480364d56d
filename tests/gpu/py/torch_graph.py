# SPDX-License-Identifier: Apache-2.0
"""A whole training step as a CUDA graph, replayed with new batches; the same steps without a graph give the same weights."""
import result

torch = result.torch_ready()


def make():
	torch.manual_seed(1)
	model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.Tanh(), torch.nn.Linear(256, 128), torch.nn.ReLU(),
				    torch.nn.Linear(128, 1)).cuda()
	return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


generator = torch.Generator().manual_seed(2)
batches = [(torch.randn(64, 128, generator=generator).cuda(), torch.randn(64, 1, generator=generator).cuda()) for _ in range(12)]


def step(model, optimizer, sample, target):
	optimizer.zero_grad(set_to_none=False)
	loss = torch.nn.functional.mse_loss(model(sample), target)
	loss.backward()
	optimizer.step()
	return loss


# Gradients and momentum exist before the capture; then both models begin from the same place.
def warm(model, optimizer, sample, target):
	start = {name: value.clone() for name, value in model.state_dict().items()}
	for _ in range(3):
		step(model, optimizer, sample, target)
	model.load_state_dict(start)
	for state in optimizer.state.values():
		state["momentum_buffer"].zero_()


sample, target = torch.zeros_like(batches[0][0]), torch.zeros_like(batches[0][1])
model, optimizer = make()
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
	warm(model, optimizer, *batches[0])
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
	loss = step(model, optimizer, sample, target)
# A capture runs nothing.
losses = []
for one, two in batches:
	sample.copy_(one)
	target.copy_(two)
	graph.replay()
	losses.append(loss.item())

plain, plain_optimizer = make()
warm(plain, plain_optimizer, *batches[0])
plain_losses = [step(plain, plain_optimizer, one, two).item() for one, two in batches]
result.check(all(abs(a - b) < 1e-4 for a, b in zip(losses, plain_losses)), "losses", losses, plain_losses)
for a, b in zip(model.state_dict().values(), plain.state_dict().values()):
	result.check(torch.allclose(a, b, atol=1e-4), "weights differ by", (a - b).abs().max().item())
result.add(*losses, *model.state_dict().values())

# Two graphs that share a memory pool, with private allocations inside.
pool = torch.cuda.graph_pool_handle()
x = torch.ones(1000, device="cuda")
first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
y = x * 3 + x.roll(1)
(y + 1).sqrt().sum()
with torch.cuda.graph(first, pool=pool):
	y = x * 3 + x.roll(1)
with torch.cuda.graph(second, pool=pool):
	z = (y + 1).sqrt().sum()
for factor in (1.0, 2.0, 5.0):
	x.fill_(factor)
	first.replay()
	second.replay()
	want = 1000 * (factor * 4 + 1) ** 0.5
	result.check(abs(z.item() - want) < 1e-4 * want, "two graphs:", z.item(), "not", want)
	result.add(z)
result.end()
