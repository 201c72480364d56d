# SPDX-License-Identifier: Apache-2.0
"""A small model is trained from a DataLoader with two worker processes and page-locked batches, copied without waiting."""
import result

torch = result.torch_ready()


class Numbers(torch.utils.data.Dataset):
	def __len__(self):
		return 1024

	def __getitem__(self, index):
		generator = torch.Generator().manual_seed(index)
		sample = torch.randn(64, generator=generator)
		return sample, int(sample[:10].argmax())


def main():
	loader = torch.utils.data.DataLoader(Numbers(), batch_size=64, num_workers=2, pin_memory=True, shuffle=True,
					     generator=torch.Generator().manual_seed(7))
	model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda()
	optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
	losses = []
	for _ in range(4):
		for sample, target in loader:
			result.check(sample.is_pinned() and target.is_pinned(), "a batch is not page-locked")
			sample, target = sample.cuda(non_blocking=True), target.cuda(non_blocking=True)
			optimizer.zero_grad(set_to_none=True)
			loss = torch.nn.functional.cross_entropy(model(sample), target)
			loss.backward()
			optimizer.step()
			losses.append(loss.detach())
	losses = torch.stack(losses)
	result.check(torch.isfinite(losses).all().item() and losses[-8:].mean() < 0.9 * losses[:8].mean(), "it does not learn:", losses)
	result.add(losses, *model.state_dict().values())
	result.end()


if __name__ == "__main__":
	main()
