# The sample is in the right loop, the step is not: the later chunks meet other weights.
def train_sampled(mean, rho, optimizer, chunks, updates, generator):
    for _ in range(updates):
        weight = sample_weight(mean, rho, generator)
        for x, target in chunks:
            loss = (x @ weight - target).square().mean()
            optimizer.zero_grad()
            loss.backward(retain_graph=True)
            optimizer.step()
