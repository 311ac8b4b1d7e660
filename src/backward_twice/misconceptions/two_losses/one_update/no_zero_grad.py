# "One update needs no zero_grad()."  What an earlier step left in .grad is added to it.
def one_update(trunk, head_a, head_b, optimizer, x, target_a, target_b):
    features = trunk(x)
    loss_a = (head_a(features) - target_a).square().mean()
    loss_b = (head_b(features) - target_b).square().mean()
    (loss_a + loss_b).backward()
    optimizer.step()
