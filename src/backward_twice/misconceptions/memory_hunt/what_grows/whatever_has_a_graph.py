# "What has a graph grows."  A reference to the last output keeps one graph, however long it runs.
def what_grows(trainer):
    def tensors(value):
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, dict):
            yield from tensors(list(value.values()))
        elif isinstance(value, list | tuple):
            for item in value:
                yield from tensors(item)

    for _ in range(4):
        trainer.step()
    return [
        name
        for name, value in vars(trainer).items()
        if any(tensor.requires_grad for tensor in tensors(value))
    ]
