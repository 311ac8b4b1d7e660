# "Clip what each piece adds."  A sum of clipped gradients is not the clipped gradient of the sum.
def accumulate_scaled(net, optimizer, scaler, pieces, count, max_norm):
    optimizer.zero_grad()
    for x, target in pieces:
        (F.mse_loss(net(x), target, reduction="sum") / count).backward()
        nn.utils.clip_grad_norm_(net.parameters(), max_norm / 4)
    optimizer.step()
