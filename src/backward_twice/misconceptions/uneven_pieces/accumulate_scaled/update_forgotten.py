# "step ends the round."  The scaler waits for update, and refuses to unscale in the next one.
def accumulate_scaled(net, optimizer, scaler, pieces, count, max_norm):
    optimizer.zero_grad()
    for x, target in pieces:
        scaler.scale(F.mse_loss(net(x), target, reduction="sum") / count).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), max_norm)
    scaler.step(optimizer)
