# "Detach what the chunks share", and nothing carries the gradient across the cut: no training.
def train_sampled(mean, rho, optimizer, chunks, updates, generator):
    for _ in range(updates):
        weight = sample_weight(mean, rho, generator).detach().requires_grad_()
        optimizer.zero_grad()
        for x, target in chunks:
            loss = (x @ weight - target).square().mean()
            loss.backward()
        optimizer.step()
