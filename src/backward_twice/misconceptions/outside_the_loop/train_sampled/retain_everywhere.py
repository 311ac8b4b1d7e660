# "The error says retain_graph=True."  One old sample for all updates, around a mean that has moved.
def train_sampled(mean, rho, optimizer, chunks, updates, generator):
    weight = sample_weight(mean, rho, generator)
    for _ in range(updates):
        optimizer.zero_grad()
        for x, target in chunks:
            loss = (x @ weight - target).square().mean()
            loss.backward(retain_graph=True)
        optimizer.step()
