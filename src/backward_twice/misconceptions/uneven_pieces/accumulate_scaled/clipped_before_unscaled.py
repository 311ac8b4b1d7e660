# "Clip after backward, as always."  The gradients are still scaled: nearly nothing is left.
def accumulate_scaled(net, optimizer, scaler, pieces, count, max_norm):
    optimizer.zero_grad()
    for x, target in pieces:
        scaler.scale(F.mse_loss(net(x), target, reduction="sum") / count).backward()
    nn.utils.clip_grad_norm_(net.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
