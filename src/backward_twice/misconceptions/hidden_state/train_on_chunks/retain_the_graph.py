# "The error says retain_graph=True."  The optimizer has changed weights that were saved.
def train_on_chunks(lstm, head, optimizer, chunks):
    state = None
    for x, y in chunks:
        output, state = lstm(x, state)
        loss = (head(output) - y).square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
