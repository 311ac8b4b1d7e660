# "Compute it in the loop", in the innermost: it runs, and each chunk has another sample.
def train_sampled(mean, rho, optimizer, chunks, updates, generator):
    for _ in range(updates):
        optimizer.zero_grad()
        for x, target in chunks:
            weight = sample_weight(mean, rho, generator)
            loss = (x @ weight - target).square().mean()
            loss.backward()
        optimizer.step()
