# "A new graph needs a new state."  It runs, and the network forgets at every chunk.
def train_on_chunks(lstm, head, optimizer, chunks):
    for x, y in chunks:
        output, _ = lstm(x)
        loss = (head(output) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
