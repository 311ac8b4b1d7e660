# "What is zero has no graph."  The rows that go on lead into the freed graph.
def train_with_restarts(gru, head, optimizer, chunks):
    state = torch.zeros(1, chunks[0][0].shape[1], gru.hidden_size)
    for x, y, starts in chunks:
        output, state = gru(x, state * ~starts[:, None])
        loss = (head(output) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
