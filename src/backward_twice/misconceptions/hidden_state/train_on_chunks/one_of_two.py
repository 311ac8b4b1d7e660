# Detaches the hidden state and forgets the cell state, which leads into the freed graph as well.
def train_on_chunks(lstm, head, optimizer, chunks):
    state = None
    for x, y in chunks:
        output, (hidden, cell) = lstm(x, state)
        loss = (head(output) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state = hidden.detach(), cell
